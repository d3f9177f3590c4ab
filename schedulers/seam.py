"""The seam between the data plane and whatever decides when a request runs."""

from typing import Protocol

from schedulers.reply import Reply
from schedulers.request import InferRequest


class Scheduler(Protocol):
    """When, and in whose company, a request runs. Every method belongs to the loop's thread."""

    def submit(self, request: InferRequest) -> Reply:
        """Accept at once or raise `QueueFull` / `Draining`; never blocks. A scheduler of sequences
        raises `BadSequence` / `SequenceLost` for a request that is none of its sequences'.

        If it raises, the caller still owns the request. If it returns, the Reply will end.
        """

    def inflight(self) -> int:
        """Requests accepted and not yet answered."""

    def hung(self) -> int:
        """Instances out of use because an execution on a thread of this process hangs."""

    async def drain(self, until_ns: int) -> None:
        """Refuse new requests; return when the last is answered or `time.monotonic_ns` passes
        `until_ns`. Requests still inside then are failed by `close`."""

    async def close(self) -> None:
        """Fail what is left with `ShutDown` and close every instance. Idempotent."""
