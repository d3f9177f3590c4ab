"""Slots of an instance, the sequences in them, and whose requests run together next. Pure policy.

`schedulers.policy.sequences` gives sequences their slots. Source of the semantics: the strategies
direct and oldest of Triton's sequence batcher.
"""

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

from backends.seam import SEQUENCE_END, SEQUENCE_START
from schedulers.policy.merge import MergeRules, cut
from schedulers.policy.queue import NEVER, Ticket

Key = int | str


@dataclass(frozen=True, slots=True)
class SequenceRules:
    """What a model's config says of its sequences.

    `direct`: a sequence keeps a row of the batch; otherwise the oldest requests are merged by
    `merge`. `slots` an instance has; `least` of them must have a request before `delay_ns` have
    passed (direct). `max_waiting` requests may wait in all. `iterative`: each request is a sequence
    of its own. `numeric_keys`: the type of the correlation id, where only numbers fit it.
    `hold_until`, `hold_backlog`: requests that must wait before the first batch runs (Triton's test
    hooks).
    """

    direct: bool
    slots: int
    idle_ns: int
    max_waiting: int
    merge: MergeRules
    delay_ns: int = 0
    least: int = 0
    iterative: bool = False
    numeric_keys: str = ""
    hold_until: int = 0
    hold_backlog: int = 0


class LiveSequence:
    """One sequence: its requests that wait, the one that runs, and its place.

    `began_ns`: when its first request came. `lane` None: in the backlog. `ended`: no further
    request is to come. `gone`: over, whatever still runs, because of `error`. `runs`: executions of
    the request at the front, of an iterative sequence.
    """

    __slots__ = (
        "began_ns",
        "ended",
        "error",
        "gone",
        "idle_since_ns",
        "key",
        "lane",
        "running",
        "runs",
        "slot",
        "waiting",
    )

    def __init__(self, key: Key, began_ns: int) -> None:
        self.key = key
        self.began_ns = began_ns
        self.lane: SlotLane | None = None
        self.slot = -1
        self.waiting: deque[Ticket] = deque()
        self.running: Ticket | None = None
        self.ended = self.gone = False
        self.error: Exception | None = None
        self.idle_since_ns = 0
        self.runs = 0

    def flags(self) -> int:
        """Of the request that runs, for the model."""
        member = None if self.running is None else self.running.request.sequence
        if member is None or self.runs or not (member.start or member.end):
            return 0
        return member.start * SEQUENCE_START + member.end * SEQUENCE_END


class SlotLane:
    """The slots of one instance. `usable`: sequences may begin here. `ready`: those with a request
    that could run now. `released`: slots that were freed since the instance was last given any."""

    def __init__(self, number: int, slots: int) -> None:
        self.number = number
        self.usable = True
        self.sequences: dict[int, LiveSequence] = {}
        self.ready: dict[LiveSequence, None] = {}
        self.free = list(range(slots))
        self.released: list[int] = []


class SlotPick(NamedTuple):
    """Who runs next on an instance, or, when nobody, when to ask again. `height`: rows of the
    execution; 0 for as many as there are sequences."""

    sequences: list[LiveSequence]
    height: int
    again_ns: int


def pick(lane: SlotLane, rules: SequenceRules, now_ns: int) -> SlotPick:
    """Whose requests the lane's instance executes together now."""
    if not lane.ready:
        return SlotPick([], 0, NEVER)
    return _pick_direct(lane, rules, now_ns) if rules.direct else _pick_oldest(lane, rules, now_ns)


def _pick_direct(lane: SlotLane, rules: SequenceRules, now_ns: int) -> SlotPick:
    """Every slot with a request, each in its own row; of different shapes, those like the oldest,
    and the others the next time."""
    ready = sorted(lane.ready, key=_slot_of)
    if rules.delay_ns and len(ready) < rules.least:
        oldest_ns = min(live.waiting[0].request.arrived_ns for live in ready)
        if now_ns < oldest_ns + rules.delay_ns:
            return SlotPick([], 0, oldest_ns + rules.delay_ns)
    shape = min(ready, key=_arrival_of).waiting[0].request.shape_key
    picked = [live for live in ready if live.waiting[0].request.shape_key == shape]
    return SlotPick(picked, picked[-1].slot + 1, NEVER)


def _pick_oldest(lane: SlotLane, rules: SequenceRules, now_ns: int) -> SlotPick:
    ready = sorted(lane.ready, key=_arrival_of)
    take, again_ns = cut([live.waiting[0] for live in ready], rules.merge, now_ns)
    return SlotPick(ready[:take], 0, again_ns)


def _slot_of(live: LiveSequence) -> int:
    return live.slot


def _arrival_of(live: LiveSequence) -> int:
    return live.waiting[0].request.arrived_ns
