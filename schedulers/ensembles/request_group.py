"""Carry requests through an ensemble together: each step is one call for all of them.

Made by `schedulers.ensembles.scheduler` of requests that arrived in one turn of the event loop and
follow one plan, all of whose steps run once and take rows of one shape. What belongs to one
request stays its own: its deadline, its client that goes, its error. On the loop's thread.
"""

import asyncio
import time
from collections.abc import Callable, Sequence

from schedulers.calls import GroupCallee
from schedulers.counters import StepCounters
from schedulers.ensembles.policy.request_plan import RequestPlan
from schedulers.ensembles.policy.static_run import StaticGroup, StaticPlan
from schedulers.ensembles.step_errors import in_ensemble
from schedulers.errors import DeadlineExceeded
from schedulers.policy.queue import NEVER, Ticket
from schedulers.reply import Reply
from schedulers.request import CallContext, InferResponse
from schedulers.request_groups import GroupMember, GroupTicket

MemberEnded = Callable[["RequestGroup", Ticket, Exception | None], None]


class RequestGroup:
    """The listener of its requests' replies. `rows`: of all of them; `queue_ns`: spent in their
    steps' queues."""

    __slots__ = (
        "_callees",
        "_context",
        "_counters",
        "_ended",
        "_live",
        "_loop",
        "_open",
        "_plan",
        "_state",
        "_tickets",
        "_timer",
        "_timer_ns",
        "most_rows",
        "queue_ns",
        "rows",
    )

    def __init__(
        self,
        plan: RequestPlan,
        static: StaticPlan,
        callees: Sequence[GroupCallee],
        context: CallContext,
        loop: asyncio.AbstractEventLoop,
        ended: MemberEnded,
        counters: Sequence[StepCounters],
    ) -> None:
        """`callees`: of the steps, by their places in the static plan."""
        self.rows = self.queue_ns = 0
        self.most_rows = min(callee.most_rows for callee in callees)
        self._plan = static
        self._state = StaticGroup(static, plan.outputs)
        self._callees = callees
        self._context = context
        self._loop = loop
        self._ended = ended
        self._counters = counters
        self._tickets: list[Ticket] = []
        self._live = 0
        self._open: dict[Reply, tuple[int, int]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ns = NEVER

    def add(self, ticket: Ticket) -> None:
        """One more request; before `start`."""
        request = ticket.request
        ticket.source = self
        self._tickets.append(ticket)
        self._state.add(request.inputs)
        self._live += 1
        self.rows += request.rows
        if request.deadline_ns:
            self._wait_until(request.deadline_ns)

    def start(self) -> None:
        self._go_on()

    def fail(self, error: Exception) -> None:
        """End all requests with this error, and all that runs for them."""
        for ticket in self._tickets:
            self._fail(ticket, error)

    # the readers'

    def taken(self) -> None:
        """Of no interest: there is one response."""

    def cancel(self) -> None:
        """The client of some request has gone."""
        for ticket in self._tickets:
            if ticket.cancelled:
                self._leave(ticket, None)

    def _wait_until(self, deadline_ns: int) -> None:
        if deadline_ns >= self._timer_ns:
            return
        if self._timer is not None:
            self._timer.cancel()
        seconds = max(0.0, (deadline_ns - time.monotonic_ns()) / 1e9)
        self._timer_ns = deadline_ns
        self._timer = self._loop.call_later(seconds, self._late)

    def _late(self) -> None:
        self._timer, self._timer_ns = None, NEVER
        now_ns = time.monotonic_ns()
        for ticket in self._tickets:
            if 0 < ticket.request.deadline_ns <= now_ns:
                self._fail(ticket, DeadlineExceeded("Request timeout expired"))
        for ticket in self._tickets:
            if not ticket.ended and ticket.request.deadline_ns:
                self._wait_until(ticket.request.deadline_ns)

    # the way

    def _go_on(self) -> None:
        for place in self._state.take():
            if self._live:
                self._call(place)
        if self._live and self._state.complete:
            self._answer()

    def _call(self, place: int) -> None:
        members, state, callee = [], self._state, self._callees[place]
        number = self._plan.steps[place].step.number
        asked = self._plan.asked[number]
        began_ns = time.monotonic_ns()
        for at, ticket in enumerate(self._tickets):
            if ticket.ended:
                continue
            inputs = state.inputs(place, at)
            try:
                rows = callee.rows_of(ticket, inputs, asked)
            except Exception as error:  # noqa: BLE001 - whatever refuses a step refuses the request
                self._fail_step(ticket, number, 0, error)
                continue
            members.append(GroupMember(ticket, at, inputs, rows, asked))
        if not members:
            return
        group, refused = callee.submit(members, asked)
        for member, reason in refused:  # may let others go, by what their clients do then
            self._fail_step(member.ticket, number, 0, reason)
        gone = sum(member.ticket.ended for member in group.members)
        self._counters[number].cancelled += gone
        if gone and not self._live:
            group.cancel()
        elif group.members:
            self._open[group] = place, began_ns
            group.then(self._answered)

    def _answered(self, reply: Reply) -> None:
        """A step has ended for all requests that it was called for."""
        found = self._open.pop(reply, None)
        if found is None:
            return
        assert isinstance(reply, GroupTicket)
        place, began_ns = found
        if reply.error is not None:
            number = self._plan.steps[place].step.number
            for member in reply.members:
                self._fail_step(member.ticket, number, member.rows, reply.error)
            return
        queue_ns = max(0, reply.started_ns - began_ns)
        self.queue_ns += queue_ns
        self._take_results(reply, place, queue_ns, time.monotonic_ns() - began_ns)
        self._state.ended(place)
        self._go_on()

    def _take_results(self, reply: GroupTicket, place: int, queue_ns: int, total_ns: int) -> None:
        number, state, rows, calls = self._plan.steps[place].step.number, self._state, 0, 0
        for member, result in zip(reply.members, reply.results, strict=True):
            if member.ticket.ended:
                continue
            if isinstance(result, Exception):
                self._fail_step(member.ticket, number, member.rows, result)
                continue
            calls += 1
            rows += member.rows
            try:
                state.answered(place, member.place, result)
            except Exception as error:  # noqa: BLE001 - a step's error is the request's
                self._fail(member.ticket, in_ensemble(member.ticket.request.model, error))
        if calls:
            counters = self._counters[number]
            counters.count(rows, queue_ns, total_ns, failed=False, calls=calls)

    def _answer(self) -> None:
        for place, ticket in enumerate(self._tickets):
            if ticket.ended:
                continue
            outputs, request = self._state.outputs(place), ticket.request
            self._leave(ticket, None)
            ticket.send(InferResponse(request.id, request.model, request.version, outputs))

    # how a request ends

    def _fail_step(self, ticket: Ticket, number: int, rows: int, error: Exception) -> None:
        if not ticket.ended:
            self._counters[number].count(rows, 0, 0, failed=True)
            self._fail(ticket, in_ensemble(ticket.request.model, error))

    def _fail(self, ticket: Ticket, error: Exception) -> None:
        if not ticket.ended:
            self._leave(ticket, error)
            ticket.fail(error)

    def _leave(self, ticket: Ticket, error: Exception | None) -> None:
        """Let go of one request, once; with the last, of everything."""
        if ticket.source is not self:
            return
        ticket.source = None
        self._live -= 1
        for place, _ in self._open.values():
            self._counters[self._plan.steps[place].step.number].cancelled += 1
        if not self._live:
            self._end()
        self._ended(self, ticket, error)

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        running, self._open = self._open, {}
        for reply in running:
            reply.cancel()
        self._context.end()
