"""Copies of requests for arms that only listen: few at a time, dropped when they are too many.

The data plane offers a request after it was submitted; the copies go out in a later turn of the
loop. Nobody reads their answers, which are only counted.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from repository.config.tensors import Array
from schedulers.errors import SchedulingError
from schedulers.reply import Reply
from schedulers.request import InferRequest
from server.errors import InvalidRequest, ServingError
from server.routing.arm_counters import ArmCounters
from server.routing.arm_counters_registry import ArmCountersRegistry
from server.routing.table import Key, Target

RUNNING, WAITING = 8, 32
"""Copies that one target may have unanswered, and that may wait for it."""

WAITING_BYTES = 16 << 20
"""And what these may hold together, over all targets."""

PATIENCE_NS = 2_000_000_000
"""What a target has not answered by then counts as failed; what still waits by then is dropped."""

LOOK_NS = 100_000_000
"""Between two looks at copies that a target has kept for too long."""

Send = Callable[[Target, InferRequest, int], Reply]
"""Submit a copy with this deadline. Raises what refuses it."""


class _MirrorRequest(NamedTuple):
    target: Target
    request: InferRequest
    size_bytes: int
    until_ns: int


class _InFlightMirror:
    """A copy that its target has accepted."""

    __slots__ = ("_lane", "_window", "late", "until_ns")

    def __init__(self, lane: "_MirrorQueue", window: ArmCounters, until_ns: int) -> None:
        self._lane = lane
        self._window = window
        self.until_ns = until_ns
        self.late = False
        window.entered += 1

    def give_up(self) -> None:
        """It counts as failed; its place stays taken until the target lets go of it."""
        self.late = True
        self._window.refused()

    def ended(self, reply: Reply) -> None:
        if self.late:
            self._window.left()
        else:
            self._window.ended(reply)
        self._lane.sent.discard(self)
        self._lane.wake()


class _MirrorQueue:
    """One target's copies. A wedged target keeps its few for good; the others are dropped.

    `full_until_ns`: until then nothing is taken, without another look; 0 while there is room.
    """

    __slots__ = ("_wake", "dropped", "full_until_ns", "looked_ns", "sent", "waiting")

    def __init__(self, wake: Callable[[], None]) -> None:
        self.waiting: deque[_MirrorRequest] = deque()
        self.sent: set[_InFlightMirror] = set()
        self.dropped = 0
        self.full_until_ns = 0
        self._wake = wake
        self.looked_ns = 0

    def wake(self) -> None:
        if self.waiting:
            self._wake()

    def has_room(self, now_ns: int) -> bool:
        """Whether one more may wait. What is out for too long is counted first."""
        if now_ns - self.looked_ns >= LOOK_NS and len(self.sent) >= RUNNING:
            self._give_up(now_ns)
        if len(self.waiting) < WAITING or self.waiting[0].until_ns < now_ns:
            return True
        self.full_until_ns = min(self.waiting[0].until_ns, now_ns + LOOK_NS)
        return False

    def taken(self) -> _MirrorRequest:
        """The one that has waited longest."""
        self.full_until_ns = 0
        return self.waiting.popleft()

    def _give_up(self, now_ns: int) -> None:
        """Count what has been out for too long."""
        self.looked_ns = now_ns
        for one in self.sent:
            if not one.late and one.until_ns < now_ns:
                one.give_up()


class Mirrors:
    """All targets'. On the loop's thread."""

    def __init__(self, send: Send, windows: ArmCountersRegistry) -> None:
        self._send = send
        self._windows = windows
        self._lanes: dict[Key, _MirrorQueue] = {}
        self._lane_of: dict[Target, _MirrorQueue] = {}
        self._held_bytes = 0
        self._woken = False

    @property
    def dropped(self) -> dict[Key, int]:
        """Copies that were not made because there were too many, by target."""
        return {key: lane.dropped for key, lane in self._lanes.items()}

    def use(self, targets: list[Target]) -> None:
        """These are in the table from now on; what waits for others is dropped."""
        current = {target.key for target in targets}
        self._lane_of.clear()
        for key in [key for key in self._lanes if key not in current]:
            lane = self._lanes.pop(key)
            while lane.waiting:
                self._taken(lane)

    def offer(self, targets: tuple[Target, ...], request: InferRequest) -> None:
        """Take a copy for each target there is memory for. Never of a sequence: a copy of a part of
        one would be another sequence."""
        if request.sequence is not None:
            return
        now_ns = time.monotonic_ns()
        for target in targets:
            lane = self._lane_of.get(target) or self._lane(target)
            if now_ns < lane.full_until_ns:
                lane.dropped += 1  # nearly all there is to do for a wedged target
            elif lane.has_room(now_ns):
                self._keep(lane, target, request, now_ns)
            else:
                lane.dropped += 1

    def _lane(self, target: Target) -> _MirrorQueue:
        lane = self._lanes.get(target.key)
        if lane is None:
            lane = self._lanes[target.key] = _MirrorQueue(self._wake)
        self._lane_of[target] = lane
        return lane

    def _keep(self, lane: _MirrorQueue, target: Target, request: InferRequest, now_ns: int) -> None:
        """Have a copy wait, if there is memory for its bytes."""
        self._drop_late(lane, now_ns)
        size = sum(map(_size, request.inputs.values()))
        if self._held_bytes + size > WAITING_BYTES:
            lane.dropped += 1
            return
        self._held_bytes += size
        lane.waiting.append(_MirrorRequest(target, request, size, now_ns + PATIENCE_NS))
        self._wake()

    def _wake(self) -> None:
        if not self._woken:
            self._woken = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        self._woken = False
        for lane in self._lanes.values():
            while lane.waiting and len(lane.sent) < RUNNING:
                self._go(lane, self._taken(lane))

    def _go(self, lane: _MirrorQueue, copy: _MirrorRequest) -> None:
        now_ns = time.monotonic_ns()
        if now_ns > copy.until_ns:
            lane.dropped += 1
            return
        window = self._windows.of(copy.target)
        try:
            reply = self._send(copy.target, copy.request, copy.until_ns)
        except InvalidRequest:
            return  # it takes other inputs: no copy can be made
        except (ServingError, SchedulingError):
            window.refused()
            return
        sent = _InFlightMirror(lane, window, copy.until_ns)
        lane.sent.add(sent)
        reply.arrived_ns = now_ns
        reply.watch(sent.ended)

    def _taken(self, lane: _MirrorQueue) -> _MirrorRequest:
        copy = lane.taken()
        self._held_bytes -= copy.size_bytes
        return copy

    def _drop_late(self, lane: _MirrorQueue, now_ns: int) -> None:
        """Make room for what is fresh."""
        while lane.waiting and lane.waiting[0].until_ns < now_ns:
            self._taken(lane)
            lane.dropped += 1


def _size(array: Array) -> int:
    """Bytes; of texts, which an array only points to, those of the texts."""
    return sum(map(len, array.reshape(-1))) if array.dtype.hasobject else array.nbytes
