"""The pump of the sequence batcher: seats sequences, runs their requests, ends what is over.

What to run is decided in `schedulers.policy.sequences`; instances, core tokens, hanging executions
and streams are those of `schedulers.batching`. Everything here runs on the event loop's thread.
"""

import asyncio
import itertools
import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace

from backends.errors import InstanceDied, Reschedule, SequenceLost
from backends.limits import NO_LIMIT, ExecutionLimit
from backends.seam import Instance, SequenceRows
from schedulers.batching import (
    REVIVAL_PATIENCE_NS,
    SHUT_DOWN,
    BatchScheduler,
    seconds_until,
)
from schedulers.counters import Counters, SequenceCounters, count_failure
from schedulers.errors import (
    BadSequence,
    Cancelled,
    Draining,
    QueueFull,
    ShutDown,
    UnknownSequence,
)
from schedulers.instance_thread import InstanceThread, Run
from schedulers.policy.cores import CoreTokens, Lease
from schedulers.policy.queue import NEVER, BatchQueue, QueuePolicy, Ticket
from schedulers.policy.sequences import Refusal, SequenceTable
from schedulers.policy.slots import Key, LiveSequence, SequenceRules, SlotLane
from schedulers.request import InferRequest
from schedulers.request import Sequence as SequenceMembership
from schedulers.sequences.outcomes import errors_of, lost_with_instance, set_aside, warn_of_conflict

_log = logging.getLogger(__name__)


def _zero() -> int:
    return 0


class SequenceBatcher(BatchScheduler):
    """Direct, oldest and iterative sequences over the instances of one version.

    `keeps_state`: whether instances are to be told of sequences that are over while they idle.
    """

    def __init__(
        self,
        rules: SequenceRules,
        instances: Sequence[Instance],
        counters: Counters,
        tokens: CoreTokens,
        limit: ExecutionLimit = NO_LIMIT,
        keeps_state: bool = False,
    ) -> None:
        self._table = SequenceTable(rules)
        self._keeps_state = keeps_state
        self._lanes: dict[InstanceThread, SlotLane] = {}
        self._deaths: dict[InstanceThread, int] = {}
        self._of_ticket: dict[Ticket, LiveSequence] = {}
        self._keys = itertools.count(1)
        self._held = bool(rules.hold_until or rules.hold_backlog)
        self._closed = False
        self._sequences_over = asyncio.Event()
        # A version that is loaded on demand goes on counting with each load.
        self.figures = figures = counters.sequences = counters.sequences or SequenceCounters()
        self._before = (figures.started, figures.expired, figures.lost, figures.conflicts)
        figures.oldest_ns, figures.state_bytes = self._table.oldest_ns, self._state_bytes
        nothing = BatchQueue(QueuePolicy(max_size=0))
        super().__init__(nothing, rules.merge, instances, counters, tokens, limit)
        if rules.iterative:
            self._streams.rescheduled = self._rescheduled

    # the seam

    def submit(self, request: InferRequest, ticket: Ticket | None = None) -> Ticket:
        """As the seam says. Of a version that drains, only sequences that live here go on.

        Raises BadSequence for a request that no sequence can have, UnknownSequence, SequenceLost.
        The last two are not counted: another version may know the sequence.
        """
        table, member = self._table, request.sequence
        if table.rules.iterative:
            member = SequenceMembership(next(self._keys), True, False)
            request = replace(request, sequence=member)
        if not self._accepting and (
            self._closed or member is None or member.start or not table.knows(member.key)
        ):
            raise Draining(f"{request.model} version {request.version} is being unloaded")
        if ticket is None or table.rules.iterative:
            ticket = Ticket(request)
        try:
            conflict = self._admit(ticket, request)
        except UnknownSequence:
            raise
        except BadSequence as error:
            count_failure(self._counters, error, 0)
            raise
        if conflict and member is not None:
            warn_of_conflict(member.key, request.model)
        self._inflight += 1
        self._counters.pending += 1
        self.wake()
        return ticket

    def _admit(self, ticket: Ticket, request: InferRequest) -> bool:
        try:
            return self._table.admit(ticket, request.arrived_ns)
        except QueueFull:
            self._turn_away(self._table.forget_cancelled())
            return self._table.admit(ticket, request.arrived_ns)

    def holds(self, key: Key) -> bool:
        """Whether requests that continue this sequence belong to this version."""
        return not self._closed and self._table.knows(key)

    @property
    def accepting(self) -> bool:
        """Whether sequences may begin here."""
        return self._accepting

    def supersede(self, key: Key, model: str) -> None:
        """The sequence was begun anew elsewhere: here it ends with what waits of it."""
        before = self._table.conflicts
        self._turn_away(self._table.supersede(key))
        if self._table.conflicts != before:
            warn_of_conflict(key, model)
            self.wake()

    async def drain(self, until_ns: int) -> None:
        """As the seam says; sequences that live go on until they end, are idle for too long, or
        the time is up."""
        self._accepting = False
        self._held = False
        self.wake()
        self._sequences_over.clear()
        if self._inflight or len(self._table):
            try:
                async with asyncio.timeout(seconds_until(until_ns)):
                    await self._sequences_over.wait()
            except TimeoutError:
                self._close_patience_s = 0.0  # they have had their time

    async def close(self) -> None:
        self._accepting, self._closed = False, True
        self._turn_away(self._table.clear(ShutDown(SHUT_DOWN)))
        self._sequences_over.set()
        await super().close()
        figures = self.figures
        figures.live = figures.backlog = figures.slots = 0
        figures.oldest_ns = figures.state_bytes = _zero  # which keep nothing of it alive

    # instances

    def _use(self, instances: Sequence[Instance], until_ns: int = 0) -> "list[asyncio.Task[None]]":
        retiring = super()._use(instances, until_ns)
        for thread in self._threads:
            if thread not in self._lanes:
                self._lanes[thread] = self._table.add_lane(thread.number)
                self._deaths[thread] = getattr(thread.instance, "deaths", 0)
        here = set(self._threads)
        for thread, lane in self._lanes.items():
            if thread not in here:
                lane.usable = False
        self._figure()
        return retiring

    async def _retire(self, thread: InstanceThread, until_ns: int) -> None:
        """Its sequences go on here, because here is their state."""
        lane = self._lanes[thread]
        while lane.sequences and time.monotonic_ns() < until_ns and not self._closed:
            self._sequences_over.clear()
            try:
                async with asyncio.timeout(seconds_until(until_ns)):
                    await self._sequences_over.wait()
            except TimeoutError:
                break
        lost = SequenceLost("the instance with the state of this sequence was removed; start again")
        self._turn_away(self._table.lose(lane, lost, time.monotonic_ns()))
        self._table.remove_lane(lane)
        del self._lanes[thread], self._deaths[thread]
        await super()._retire(thread, until_ns)

    def _look_after_instances(self, now_ns: int) -> None:
        """Lose the sequences of instances that died, also if they are back already."""
        for thread, lane in self._lanes.items():
            deaths = getattr(thread.instance, "deaths", 0)
            if deaths != self._deaths[thread]:
                self._deaths[thread] = deaths
                self._lose(lane, thread, now_ns)
            if thread in self._threads:
                lane.usable = thread.instance.ready

    def _lose(self, lane: SlotLane, thread: InstanceThread, now_ns: int) -> None:
        if count := len(lane.sequences):
            _log.error("%d sequences were lost with instance %d", count, thread.number)
            self._turn_away(self._table.lose(lane, lost_with_instance(lane), now_ns))

    # the pump

    def _pump(self) -> None:
        self._pumping = False
        now_ns = time.monotonic_ns()
        self._look_after_instances(now_ns)
        table = self._table
        if now_ns >= table.next_ns or table.backlog:
            self._turn_away(table.expire(now_ns))
        again_ns = self._start_what_can(now_ns)
        self._set_timer(min(again_ns, table.next_ns), now_ns)
        self._figure()

    def _start_what_can(self, now_ns: int) -> int:
        table = self._table
        if self._closed or (self._held and self._holds_back()):
            return NEVER
        self._held = False
        again_ns = NEVER
        for thread, lane in list(self._lanes.items()):
            if not thread.free or not (lane.ready or (lane.released and self._keeps_state)):
                continue
            self._turn_away(table.drop_cancelled(lane))
            pick = table.pick(lane, now_ns)
            again_ns = min(again_ns, pick.again_ns)
            if not pick.sequences and (lane.ready or not (lane.released and self._keeps_state)):
                continue
            if not self._may_start(thread):
                continue
            cores = thread.instance.cores
            lease = self._tokens.take(self, cores, now_ns, self._expected_ns)
            if lease is None:
                return min(again_ns, self._tokens.overdue_ns() or NEVER)
            self._start_picked(thread, lane, lease, pick.sequences, pick.height, now_ns)
        self._leave_line()
        if table.waiting:
            again_ns = min(again_ns, self._revival_ns(now_ns))
        return again_ns

    def _may_start(self, _thread: InstanceThread) -> bool:
        """Whether an instance that has something to run may do so now."""
        return True

    def _holds_back(self) -> bool:
        """Triton's test hooks: nothing runs until so many requests wait, in slots and backlog."""
        rules, table = self._table.rules, self._table
        in_backlog = sum(len(live.waiting) for live in table.backlog)
        return table.waiting - in_backlog < rules.hold_until or in_backlog < rules.hold_backlog

    def _start_picked(
        self,
        thread: InstanceThread,
        lane: SlotLane,
        lease: Lease,
        picked: list[LiveSequence],
        height: int,
        now_ns: int,
    ) -> None:
        """`picked` nobody: the instance is only given the states that it can forget."""
        tickets = self._table.start(lane, picked)
        self._of_ticket.update(zip(tickets, picked, strict=True))
        rows = SequenceRows(
            tuple([live.slot for live in picked]),
            tuple([live.flags() for live in picked]),
            height if self._rules.batched else 0,
            tuple(lane.released),
        )
        lane.released.clear()
        self._counters.pending -= len(tickets)
        self._launch(thread, Run(tickets, self._rules.batched, now_ns, lease, rows))

    def _revival_ns(self, now_ns: int) -> int:
        """When to give up on a model none of whose instances is alive; NEVER if one is."""
        if any(thread.instance.ready for thread in self._threads):
            self._dead_since_ns = 0
            return NEVER
        self._dead_since_ns = self._dead_since_ns or now_ns
        give_up_ns = self._dead_since_ns + REVIVAL_PATIENCE_NS
        if now_ns < give_up_ns:
            return give_up_ns
        self._turn_away(
            self._table.clear(InstanceDied("no instance of the model recovered in time"))
        )
        return NEVER

    # what has run

    def _answer(self, run: Run) -> None:
        if not run.tickets:
            self.wake()
            return
        tickets, errors = list(run.tickets), errors_of(run)
        iterative = self._table.rules.iterative
        if iterative and any(isinstance(error, Reschedule) for error in errors):
            set_aside(run, errors)
        now_ns = time.monotonic_ns()
        run.answer(self._counters, now_ns)
        self._inflight -= len(run.tickets)
        if not any(errors):  # nearly always
            found = (self._of_ticket.pop(ticket, None) for ticket in tickets)
            self._turn_away(self._table.finish_well(filter(None, found), now_ns))
        else:
            for ticket, error in zip(tickets, errors, strict=True):
                if iterative and isinstance(error, Reschedule):
                    self._again(ticket)
                else:
                    self._finish(ticket, error, now_ns)
        self.wake()

    def _finish(self, ticket: Ticket, error: Exception | None, now_ns: int) -> None:
        live = self._of_ticket.pop(ticket, None)
        if live is None:
            return
        if error is not None:  # an instance that has died has no slots for the backlog
            self._look_after_instances(now_ns)
        if refused := self._table.finish(live, error, now_ns):
            self._turn_away(refused)

    def _again(self, ticket: Ticket) -> None:
        """Its model asks for another execution."""
        live = self._of_ticket.pop(ticket, None)
        if live is None or live.gone:
            error = live.error if live is not None else None
            gone = Cancelled("") if ticket.cancelled else error or ShutDown(SHUT_DOWN)
            self._refuse((ticket,), gone)
            self._counters.pending += 1  # it was not among those that wait
            return
        self._table.again(live)
        self._counters.pending += 1

    def _taken_in(self, run: Run) -> None:
        """Its streams may all have ended before the instance was free."""
        super()._taken_in(run)
        self.wake()

    def _rescheduled(self, ticket: Ticket) -> None:
        """A decoupled model asks for another execution, which goes on with the same answer."""
        self._inflight += 1  # its stream has ended, its answer has not
        self._again(ticket)
        self.wake()

    def _stream_ended(self, ticket: Ticket) -> None:
        self._inflight -= 1
        if ticket.ended:
            self._finish(ticket, ticket.error, time.monotonic_ns())
        self.wake()

    def _abandon(self, run: Run, now_ns: int) -> None:
        """The instance hangs: nobody knows what became of its sequences."""
        if not run.tickets:
            return
        super()._abandon(run, now_ns)
        for ticket in run.tickets:
            self._of_ticket.pop(ticket, None)
        lane = next((lane for thread, lane in self._lanes.items() if thread.running is run), None)
        if lane is not None:
            lost = SequenceLost("the execution of this sequence hung; start the sequence again")
            self._turn_away(self._table.lose(lane, lost, now_ns))
            self.wake()

    # what does not run

    def _turn_away(self, refused: Iterable[Refusal]) -> None:
        for ticket, error in refused:
            if ticket.cancelled:
                self._left(1, cancelled=True)
            else:
                self._refuse((ticket,), error)

    def _left(self, count: int, *, cancelled: bool) -> None:
        super()._left(count, cancelled=cancelled)
        if count:
            self.wake()

    def _figure(self) -> None:
        """Bring what is counted up to date, and tell who waits that all is over."""
        table, figures = self._table, self.figures
        figures.backlog = len(table.backlog)
        figures.slots = table.slots
        figures.live = len(table)
        started, expired, lost, conflicts = self._before
        figures.started, figures.expired = started + table.started, expired + table.expired
        figures.lost, figures.conflicts = lost + table.lost, conflicts + table.conflicts
        if not self._sequences_over.is_set() and self._is_over():
            self._sequences_over.set()

    def _state_bytes(self) -> int:
        return sum(getattr(thread.instance, "state_bytes", 0) for thread in self._lanes)

    def _is_over(self) -> bool:
        retiring = [lane for lane in self._lanes.values() if not lane.usable]
        if not self._accepting:
            return not (self._inflight or len(self._table))
        return any(not lane.sequences for lane in retiring)
