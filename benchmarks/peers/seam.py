"""What every peer is to a scenario, and a peer that cannot be measured here."""

from typing import NamedTuple

from benchmarks.process import Process


class PeerUnavailable(Exception):
    """A peer cannot run on this machine; the message is the reason, shown under the table."""


class Peer(NamedTuple):
    """A running server; `rest`, `grpc` and `metrics` are HOST:PORT, empty for one it lacks."""

    name: str
    process: Process
    rest: str
    grpc: str
    metrics: str = ""

    def address(self, wire: str) -> str:
        """Where a shot of this wire goes."""
        return self.grpc if wire == "gRPC" else self.rest
