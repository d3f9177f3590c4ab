"""What the clients of one gRPC port may hold, and for how long."""

from typing import NamedTuple

from server.buffers import UNBOUNDED, BufferBudget
from server.process.loop_lag import LoopActivity


class GrpcLimits(NamedTuple):
    """`message_bytes`: largest message, both ways. `budget`: memory for unfinished messages and
    unread answers. `receive_timeout_s` and `send_timeout_s`: longest a client may bring nothing
    of a message it began, or take nothing of an answer (`server.http2.stall_detector` says how
    little counts as nothing). `activity` is told of bytes that arrive."""

    message_bytes: int
    budget: BufferBudget
    receive_timeout_s: float = 60.0
    send_timeout_s: float = 300.0
    activity: LoopActivity = LoopActivity()

    @property
    def look_s(self) -> float:
        """How often a connection's streams are looked at."""
        return min(max(min(self.receive_timeout_s, self.send_timeout_s) / 4, 0.02), 15.0)


def unbounded(message_bytes: int) -> GrpcLimits:
    """Limits whose budget only counts."""
    return GrpcLimits(message_bytes, BufferBudget(UNBOUNDED))
