"""The seam between a hosted instance and whoever answers what its model asks of the server.

A service is handed in when instances are loaded (`server.bls` has it); each life of a worker
connects to it once. What they say to each other: `backends.process.call_messages`.
"""

import socket
from collections.abc import Sequence
from typing import Protocol

from backends.process.health.liveness import Activity
from backends.seam import Member
from repository.model import ModelVersion

CAUSE_BITS = 20
"""The number of a batch's member, as a cause of calls, is that of its execution, shifted by so many
bits, and its index. Those of a stream's are the stream's."""


class CallingInstance(Protocol):
    """The instance at the other end of a connection. Any thread may ask.

    `activity.calls` is the service's to keep: calls that have no answer yet. `spec`: the same for
    every life of the instance.
    """

    @property
    def version(self) -> ModelVersion: ...
    @property
    def name(self) -> str: ...
    @property
    def spec(self) -> object: ...
    @property
    def activity(self) -> Activity: ...

    def causing(self, numbers: Sequence[int]) -> Sequence[Member]:
        """Those of these requests that are being executed; for none given, all that are."""

    def waits(self) -> None:
        """Its model has begun to wait for another one's answer; on the loop's thread."""

    def kill(self, verdict: str) -> None:
        """It has sent what no worker of ours sends; `verdict` is how its end will be told."""


class CallConnection(Protocol):
    """One life of a worker at the service. Any thread may call; nothing blocks or raises."""

    def cancelled(self, member: Member) -> None:
        """Nobody waits for this request any more: so nobody does for the calls it has caused."""

    def left(self, members: Sequence[Member]) -> None:
        """These requests are no longer being executed."""

    def close(self) -> None:
        """The worker has gone: its calls are cancelled, what it has registered is forgotten."""


class CallService(Protocol):
    """Answers models. Any thread may call."""

    def connect(self, instance: CallingInstance, connection: socket.socket) -> CallConnection:
        """Answer on this socket, which belongs to the service from now on."""

    def forget(self, spec: object) -> None:
        """An instance is closed for good."""

    def resized(self) -> None:
        """Instances of a version, or what they need to execute, have changed; on the loop."""
