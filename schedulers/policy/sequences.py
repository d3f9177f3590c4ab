"""Which sequences live, where each has its slot, and whose requests run next. Pure policy.

`schedulers.sequences.batcher` brings requests, free instances and the time. Source of the
semantics: Triton's sequence batcher. A sequence runs one request at a time, in order, on one
instance; a request that leaves without having run ends its sequence, because what followed would
be computed from a state that lacks a step.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from typing import NamedTuple

from backends.errors import BackendError, SequenceLost
from schedulers.errors import BadSequence, Cancelled, DeadlineExceeded, QueueFull, UnknownSequence
from schedulers.policy.queue import NEVER, Ticket
from schedulers.policy.slots import Key, LiveSequence, SequenceRules, SlotLane, SlotPick, pick
from schedulers.request import InferRequest

MOST_LOST = 10_000
"""Lost sequences remembered, so that their clients are told what became of them."""
LOST_NS = 60_000_000_000
"""How long each is remembered."""
_LEAST_GAP_NS = 1_000_000
GONE = (
    "a request of this sequence was cancelled before it ran, and its state lacks a step; start the "
    "sequence again"
)
"""What the requests behind a cancelled one are told."""
SEQUENCE_TIMEOUT = "timeout of the corresponding sequence has been expired"


class Refusal(NamedTuple):
    """A request that does not run, and why."""

    ticket: Ticket
    error: Exception


class SequenceTable:
    """All sequences of one version. `waiting` requests in all; `next_ns`: when `expire` has
    something to do at the latest. `started`, `expired`, `lost` and `conflicts` only grow."""

    def __init__(self, rules: SequenceRules) -> None:
        self.rules = rules
        self.lanes: list[SlotLane] = []
        self.backlog: deque[LiveSequence] = deque()
        self.waiting = 0
        self.started = self.expired = self.lost = self.conflicts = 0
        self._live: dict[Key, LiveSequence] = {}
        self._lost: OrderedDict[Key, tuple[int, str]] = OrderedDict()
        self._next_idle_ns = self._next_deadline_ns = NEVER

    def __len__(self) -> int:
        """Sequences that live: in slots and in the backlog."""
        return sum(len(lane.sequences) for lane in self.lanes) + len(self.backlog)

    @property
    def slots(self) -> int:
        return self.rules.slots * len(self.lanes)

    def oldest_ns(self) -> int:
        """When the oldest sequence that lives began, 0 without any; looks at each."""
        return min((live.began_ns for live in self._all()), default=0)

    @property
    def next_ns(self) -> int:
        return min(self._next_idle_ns, self._next_deadline_ns)

    def knows(self, key: Key) -> bool:
        """Whether requests that continue this sequence belong here: it lives, or was lost here."""
        return key in self._live or key in self._lost

    # a request comes

    def admit(self, ticket: Ticket, now_ns: int) -> bool:
        """Take a request in; whether it starts a sequence whose id another one still has.

        Raises BadSequence, UnknownSequence, SequenceLost, QueueFull.
        """
        request = ticket.request
        member = request.sequence
        if request.rows > 1:
            raise BadSequence(
                f"inference request to model '{request.model}' must specify batch-size 1 due to "
                "requirements of sequence batcher"
            )
        if member is None:
            raise BadSequence(
                f"inference request to model '{request.model}' must specify a non-zero or "
                "non-empty correlation ID"
            )
        if self.rules.numeric_keys and isinstance(member.key, str):
            raise BadSequence(
                f"inference request to model '{request.model}' has the correlation ID "
                f"'{member.key:.80}'; its model takes {self.rules.numeric_keys}, so give a number"
            )
        live = self._live.get(member.key)
        if live is None and not member.start:
            raise self._unknown(request, member.key, now_ns)
        if self.waiting >= self.rules.max_waiting:
            raise QueueFull("Exceeds maximum queue size")
        conflict = live is not None and member.start
        if live is None:
            live = self._begin(member.key, now_ns)
        elif conflict:
            live.began_ns = now_ns
        self.started += member.start
        self.conflicts += conflict
        live.waiting.append(ticket)
        self.waiting += 1
        self._set_expiry(live, ticket, now_ns)
        if member.end or self.rules.iterative:
            live.ended = True
            del self._live[member.key]
        if live.lane is not None and live.running is None:
            live.lane.ready[live] = None
        return conflict

    def _begin(self, key: Key, now_ns: int) -> LiveSequence:
        live = self._live[key] = LiveSequence(key, now_ns)
        self._lost.pop(key, None)
        lane = None if self.backlog else self._lane_with_slot()
        if lane is None:
            self.backlog.append(live)
        else:
            self._seat(live, lane)
        return live

    def _unknown(self, request: InferRequest, key: Key, now_ns: int) -> Exception:
        until_ns, reason = self._lost.get(key, (0, ""))
        if now_ns < until_ns:
            return SequenceLost(reason)
        return UnknownSequence(
            f"inference request for sequence {key} to model '{request.model}' must specify the "
            "START flag on the first request of the sequence"
        )

    def _set_expiry(self, live: LiveSequence, ticket: Ticket, now_ns: int) -> None:
        """A request's own deadline holds everywhere, its timeout while its sequence has no slot."""
        request = ticket.request
        if not request.deadline_ns and (live.lane is not None or not request.timeout_us):
            return  # nearly always; a new ticket expires never
        ticket.expires_ns = request.deadline_ns or NEVER
        if live.lane is None and request.timeout_us:
            ticket.expires_ns = min(ticket.expires_ns, now_ns + request.timeout_us * 1000)
        self._next_deadline_ns = min(self._next_deadline_ns, ticket.expires_ns)

    # slots

    def add_lane(self, number: int) -> SlotLane:
        """The slots of another instance."""
        lane = SlotLane(number, self.rules.slots)
        self.lanes.append(lane)
        return lane

    def remove_lane(self, lane: SlotLane) -> None:
        """Of an instance that is being closed; nobody is in its slots any more."""
        self.lanes.remove(lane)

    def fill_slots(self) -> list[Refusal]:
        """Give free slots to the backlog, in order; those whose clients have gone do not count."""
        refused: list[Refusal] = []
        while self.backlog and (lane := self._lane_with_slot()) is not None:
            live = self.backlog.popleft()
            if any(ticket.cancelled for ticket in live.waiting):
                refused += self._end(live, Cancelled(GONE))
                continue
            self._seat(live, lane)
            for ticket in live.waiting:
                ticket.expires_ns = ticket.request.deadline_ns or NEVER
            lane.ready[live] = None
        return refused

    def _lane_with_slot(self) -> SlotLane | None:
        """The one with the lowest free slot, so that instances fill evenly."""
        best: SlotLane | None = None
        for lane in self.lanes:
            if lane.usable and lane.free and (best is None or lane.free[0] < best.free[0]):
                best = lane
        return best

    def _seat(self, live: LiveSequence, lane: SlotLane) -> None:
        live.lane, live.slot = lane, heappop(lane.free)
        lane.sequences[live.slot] = live

    def _end(self, live: LiveSequence, error: Exception, *, is_told: bool = False) -> list[Refusal]:
        """It is over: its slot is free, and what waits of it does not run. `is_told`: its instance
        knows."""
        live.gone, live.error = True, error
        if self._live.get(live.key) is live:
            del self._live[live.key]
        refused = [Refusal(ticket, error) for ticket in live.waiting]
        self.waiting -= len(refused)
        live.waiting.clear()
        lane = live.lane
        if lane is not None:
            lane.ready.pop(live, None)
            del lane.sequences[live.slot]
            if not is_told:
                lane.released.append(live.slot)
            heappush(lane.free, live.slot)
        return refused

    # an instance is free

    def drop_cancelled(self, lane: SlotLane) -> list[Refusal]:
        """End the sequences whose next request nobody waits for any more."""
        over = [live for live in lane.ready if live.waiting[0].cancelled]
        refused = [one for live in over for one in self._end(live, Cancelled(GONE))]
        return refused + self.fill_slots() if over else refused

    def pick(self, lane: SlotLane, now_ns: int) -> SlotPick:
        """Whose requests the lane's instance executes together now."""
        return pick(lane, self.rules, now_ns)

    def start(self, lane: SlotLane, picked: Iterable[LiveSequence]) -> list[Ticket]:
        """Their next requests, which run from now on."""
        tickets = []
        for live in picked:
            live.running = ticket = live.waiting.popleft()
            del lane.ready[live]
            tickets.append(ticket)
        self.waiting -= len(tickets)
        return tickets

    # an instance is done

    def finish(self, live: LiveSequence, error: Exception | None, now_ns: int) -> list[Refusal]:
        """The running request has ended, with `error` if it failed; what does not run any more.

        A sequence whose first request failed never began: what follows would be computed from
        nothing.
        """
        ticket, live.running = live.running, None
        if live.gone or ticket is None:
            return []
        member = ticket.request.sequence
        started = member is not None and member.start
        if isinstance(error, SequenceLost):
            return self._lose(live, error, now_ns) + self.fill_slots()
        if (error is not None and started) or (live.ended and not live.waiting):
            reason = error if error is not None else UnknownSequence("")
            known = member is not None and member.end  # its instance has forgotten it by itself
            return self._end(live, reason, is_told=known) + self.fill_slots()
        self._continue(live, now_ns)
        return []

    def finish_well(self, lives: Iterable[LiveSequence], now_ns: int) -> list[Refusal]:
        """`finish` each of these without an error; a third of what that takes for a batch whose
        sequences all go on."""
        refused: list[Refusal] = []
        idles = False
        for live in lives:
            if live.gone or live.ended:
                refused += self.finish(live, None, now_ns)
                continue
            live.running = None
            if live.waiting:
                assert live.lane is not None
                live.lane.ready[live] = None
            else:
                live.idle_since_ns, idles = now_ns, True
        if idles:
            self._next_idle_ns = min(self._next_idle_ns, now_ns + self.rules.idle_ns)
        return refused

    def again(self, live: LiveSequence) -> None:
        """The model asks for another execution of the running request."""
        ticket, live.running = live.running, None
        if live.gone or ticket is None or live.lane is None:
            return
        live.runs += 1
        live.waiting.appendleft(ticket)
        self.waiting += 1
        self._next_deadline_ns = min(self._next_deadline_ns, ticket.expires_ns)
        live.lane.ready[live] = None

    def _continue(self, live: LiveSequence, now_ns: int) -> None:
        if live.waiting:
            assert live.lane is not None
            live.lane.ready[live] = None
            return
        live.idle_since_ns = now_ns
        self._next_idle_ns = min(self._next_idle_ns, now_ns + self.rules.idle_ns)

    # what ends without an execution

    def supersede(self, key: Key) -> list[Refusal]:
        """Another version has begun this sequence anew: what waits here still runs, and nothing
        follows it. What a free slot means for those that wait."""
        live = self._live.pop(key, None)
        if live is None:
            return []
        self.conflicts += 1
        live.ended = True
        if live.running is not None or live.waiting:
            return []
        return self._end(live, UnknownSequence("")) + self.fill_slots()

    def lose(self, lane: SlotLane, error: BackendError, now_ns: int) -> list[Refusal]:
        """The lane's instance knows nothing of its sequences any more."""
        refused = []
        for live in list(lane.sequences.values()):
            refused += self._lose(live, error, now_ns)
        lane.released.clear()
        return refused

    def _lose(self, live: LiveSequence, error: BackendError, now_ns: int) -> list[Refusal]:
        self.lost += 1
        if self._live.get(live.key) is live:
            self._lost[live.key] = (now_ns + LOST_NS, str(error))
            if len(self._lost) > MOST_LOST:
                self._lost.popitem(last=False)
        return self._end(live, error)

    def expire(self, now_ns: int) -> list[Refusal]:
        """End idle sequences, and those with a request that has waited too long."""
        refused: list[Refusal] = []
        if now_ns >= self._next_deadline_ns:
            refused += self._expire_waiting(now_ns)
        if now_ns >= self._next_idle_ns:
            self._expire_idle(now_ns)
        return refused + self.fill_slots()

    def _expire_waiting(self, now_ns: int) -> list[Refusal]:
        refused: list[Refusal] = []
        kept: list[LiveSequence] = []
        self._next_deadline_ns = NEVER
        for live in list(self._all()):
            late = [ticket for ticket in live.waiting if ticket.expires_ns <= now_ns]
            if late:
                ended = self._end(live, DeadlineExceeded(SEQUENCE_TIMEOUT))
                refused += [_in_own_words(one, live, now_ns) for one in ended]
                continue
            kept.append(live)
            for ticket in live.waiting:
                self._next_deadline_ns = min(self._next_deadline_ns, ticket.expires_ns)
        self.backlog = deque(live for live in kept if live.lane is None)
        return refused

    def _expire_idle(self, now_ns: int) -> None:
        idle_ns, next_ns = self.rules.idle_ns, NEVER
        for lane in self.lanes:
            for live in list(lane.sequences.values()):
                if live.waiting or live.running is not None:
                    continue
                if now_ns >= live.idle_since_ns + idle_ns:
                    self.expired += 1
                    self._end(live, UnknownSequence(""))
                else:
                    next_ns = min(next_ns, live.idle_since_ns + idle_ns)
        gap_ns = max(_LEAST_GAP_NS, idle_ns // 16)
        self._next_idle_ns = NEVER if next_ns == NEVER else max(next_ns, now_ns + gap_ns)

    def forget_cancelled(self) -> list[Refusal]:
        """End every sequence of which a request that waits was cancelled."""
        refused: list[Refusal] = []
        for live in list(self._all()):
            if any(ticket.cancelled for ticket in live.waiting):
                refused += self._end(live, Cancelled(GONE))
        self.backlog = deque(live for live in self.backlog if not live.gone)
        return refused + self.fill_slots()

    def clear(self, error: Exception) -> list[Refusal]:
        """End all of them."""
        refused = [one for live in list(self._all()) for one in self._end(live, error)]
        self.backlog.clear()
        return refused

    def _all(self) -> Iterator[LiveSequence]:
        for lane in self.lanes:
            yield from lane.sequences.values()
        yield from self.backlog


def _in_own_words(refusal: Refusal, live: LiveSequence, now_ns: int) -> Refusal:
    """A request that was late in a slot is told so; the others, and those in the backlog, of the
    sequence."""
    if live.lane is None or refusal.ticket.expires_ns > now_ns:
        return refusal
    return Refusal(refusal.ticket, DeadlineExceeded("Request timeout expired"))
