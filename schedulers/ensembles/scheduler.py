"""The scheduler of an ensemble: every request goes its own way through the graph of steps.

What may start is decided in `schedulers.ensembles.policy.run`; `schedulers.ensembles.progress`
calls the steps. Everything here runs on the event loop's thread.
"""

import asyncio
import time
from collections.abc import Sequence

from backends.seam import Instance
from schedulers.calls import ModelCaller, context_of
from schedulers.counters import (
    BatchStatistics,
    Counters,
    StepCounters,
    count_failure,
    count_success,
)
from schedulers.ensembles.policy.request_plan import RequestPlan
from schedulers.ensembles.policy.run import run_of
from schedulers.ensembles.progress import EnsembleProgress
from schedulers.ensembles.request_group import RequestGroup
from schedulers.ensembles.served_ensemble import ServedEnsemble
from schedulers.ensembles.step_errors import in_ensemble
from schedulers.errors import Cancelled, Draining, EnsembleFailed, QueueFull, ShutDown
from schedulers.policy.queue import Ticket
from schedulers.request import CallContext, InferRequest

_SHUT_DOWN = "the server unloaded this ensemble before the request could be answered"


class EnsembleScheduler:
    """A `Scheduler` without a queue of its own: requests wait where their steps do. At most
    `most_inflight` are inside."""

    def __init__(
        self,
        ensemble: ServedEnsemble,
        caller: ModelCaller,
        counters: Counters,
        most_inflight: int,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._ensemble = ensemble
        self._caller = caller
        self._counters = counters
        self._most_inflight = most_inflight
        self._running: dict[EnsembleProgress, None] = {}
        self._grouped = 0
        self._groups: dict[RequestGroup, int] = {}
        self._gathering: dict[tuple[RequestPlan, int, int], RequestGroup] = {}
        self._starting: list[RequestGroup] = []
        self._accepting = True
        self._idle = asyncio.Event()
        counters.steps = [
            StepCounters(one.step.number, one.step.model) for one in ensemble.compiled_steps
        ]

    def submit(self, request: InferRequest) -> Ticket:
        if not self._accepting:
            raise Draining(f"{request.model} version {request.version} is being unloaded")
        if self.inflight() >= self._most_inflight:
            raise QueueFull("Exceeds maximum queue size")
        plan = self._ensemble.plan(request.requested_outputs)
        ticket = Ticket(request)
        ticket.started_ns = time.monotonic_ns()
        if may_join(plan, request):
            group = self._gathering.get((plan, request.priority, request.timeout_us))
            if group in self._groups and group.rows + request.rows <= group.most_rows:
                self._join(group, ticket)
                return ticket
        context = context_of(request)
        self._caller.keep(context, plan.callees)
        group = self._new_group(plan, request, context)
        if group is None:
            self._start(ticket, plan, context)
        else:
            self._join(group, ticket)
        return ticket

    def _start(self, ticket: Ticket, plan: RequestPlan, context: CallContext) -> None:
        """By itself."""
        try:
            run = run_of(plan, ticket.request.inputs)
        except EnsembleFailed as error:
            context.end()
            failed = in_ensemble(ticket.request.model, error)
            count_failure(self._counters, failed, 0)
            ticket.fail(failed)
            return
        progress = EnsembleProgress(
            ticket, run, context, self._caller, self._loop, self._ended, self._counters.steps
        )
        self._running[progress] = None
        progress.start()

    def _new_group(
        self, plan: RequestPlan, request: InferRequest, context: CallContext
    ) -> RequestGroup | None:
        """To be joined by others that arrive before the loop turns; None where each request has to
        go by itself."""
        static = plan.static
        if static is None or not may_join(plan, request):
            return None
        found = {}
        for callee in plan.callees:
            group_callee = self._caller.group_callee(context, callee)
            if group_callee is None or group_callee.most_rows < request.rows:
                return None
            found[callee] = group_callee
        callees = [found[one.step.model, one.step.version] for one in static.steps]
        group = RequestGroup(
            plan, static, callees, context, self._loop, self._member_ended, self._counters.steps
        )
        if not self._starting:
            self._loop.call_soon(self._start_groups)
        self._starting.append(group)
        self._gathering[plan, request.priority, request.timeout_us] = group
        return group

    def _join(self, group: RequestGroup, ticket: Ticket) -> None:
        self._grouped += 1
        self._groups[group] = self._groups.get(group, 0) + 1
        group.add(ticket)

    def _start_groups(self) -> None:
        self._gathering.clear()
        starting, self._starting = self._starting, []
        for group in starting:
            group.start()

    def inflight(self) -> int:
        return len(self._running) + self._grouped

    def hung(self) -> int:
        return 0

    async def drain(self, until_ns: int) -> None:
        self._accepting = False
        self._idle.clear()
        if self.inflight():
            seconds = max(0.0, (until_ns - time.monotonic_ns()) / 1e9)
            try:
                async with asyncio.timeout(seconds):
                    await self._idle.wait()
            except TimeoutError:
                return

    async def close(self) -> None:
        self._accepting = False
        for progress in list(self._running):
            progress.fail(ShutDown(_SHUT_DOWN))
        for group in list(self._groups):
            group.fail(ShutDown(_SHUT_DOWN))
        self._ensemble.close()

    async def resize(self, instances: Sequence[Instance], until_ns: int) -> None:
        """An ensemble has no instances that could change."""

    def _ended(self, progress: EnsembleProgress, error: Exception | None) -> None:
        del self._running[progress]
        self._count(progress.ticket, progress.queue_ns, error)

    def _member_ended(self, group: RequestGroup, ticket: Ticket, error: Exception | None) -> None:
        self._grouped -= 1
        self._groups[group] -= 1
        if not self._groups[group]:
            del self._groups[group]
        self._count(ticket, group.queue_ns, error)

    def _count(self, ticket: Ticket, queue_ns: int, error: Exception | None) -> None:
        """Count a request. A batch of its own is one execution; the time that its steps' requests
        queued is its queue's, all other time is computed."""
        counters, request, now_ns = self._counters, ticket.request, time.monotonic_ns()
        total_ns = now_ns - request.arrived_ns
        if error is not None or ticket.cancelled:
            count_failure(counters, error or Cancelled(""), total_ns)
        else:
            queue_ns = min(queue_ns, total_ns)
            count_success(ticket, counters, request.arrived_ns + queue_ns, now_ns)
            counters.inferences += request.rows
            counters.executions += 1
            counters.infer_ns += total_ns - queue_ns
            counters.last_inference_ms = time.time_ns() // 1_000_000
            batch = counters.batches.get(request.rows)
            if batch is None:
                batch = counters.batches[request.rows] = BatchStatistics()
            batch.count += 1
            batch.infer_ns += total_ns - queue_ns
        if not self._running and not self._grouped:
            self._idle.set()


def may_join(plan: RequestPlan, request: InferRequest) -> bool:
    """Whether the request may go through the plan's steps together with others like it."""
    return (
        plan.static is not None
        and request.context is None
        and request.trace is None
        and request.sequence is None
        and not request.parameters
        and plan.static.given.issubset(request.inputs)
    )
