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
from schedulers.ensembles.policy.run import run_of
from schedulers.ensembles.progress import EnsembleProgress
from schedulers.ensembles.served_ensemble import ServedEnsemble
from schedulers.ensembles.step_errors import in_ensemble
from schedulers.errors import Cancelled, Draining, EnsembleFailed, QueueFull, ShutDown
from schedulers.policy.queue import Ticket
from schedulers.request import InferRequest

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
        self._accepting = True
        self._idle = asyncio.Event()
        counters.steps = [
            StepCounters(one.step.number, one.step.model) for one in ensemble.compiled_steps
        ]

    def submit(self, request: InferRequest) -> Ticket:
        if not self._accepting:
            raise Draining(f"{request.model} version {request.version} is being unloaded")
        if len(self._running) >= self._most_inflight:
            raise QueueFull("Exceeds maximum queue size")
        plan = self._ensemble.plan(request.requested_outputs)
        context = context_of(request)
        ticket = Ticket(request)
        ticket.started_ns = time.monotonic_ns()
        try:
            run = run_of(plan, request.inputs)
        except EnsembleFailed as error:
            failed = in_ensemble(request.model, error)
            count_failure(self._counters, failed, 0)
            ticket.fail(failed)
            return ticket
        self._caller.keep(context, plan.callees)
        progress = EnsembleProgress(
            ticket, run, context, self._caller, self._loop, self._ended, self._counters.steps
        )
        self._running[progress] = None
        progress.start()
        return ticket

    def inflight(self) -> int:
        return len(self._running)

    def hung(self) -> int:
        return 0

    async def drain(self, until_ns: int) -> None:
        self._accepting = False
        self._idle.clear()
        if self._running:
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
        self._ensemble.close()

    async def resize(self, instances: Sequence[Instance], until_ns: int) -> None:
        """An ensemble has no instances that could change."""

    def _ended(self, progress: EnsembleProgress, error: Exception | None) -> None:
        """Count it. A batch of its own is one execution; the time that its steps' requests queued
        is its queue's, all other time is computed."""
        del self._running[progress]
        counters, ticket, now_ns = self._counters, progress.ticket, time.monotonic_ns()
        request = ticket.request
        total_ns = now_ns - request.arrived_ns
        if error is not None or ticket.cancelled:
            count_failure(counters, error or Cancelled(""), total_ns)
        else:
            queue_ns = min(progress.queue_ns, total_ns)
            count_success(ticket, counters, request.arrived_ns + queue_ns, now_ns)
            counters.inferences += request.rows
            counters.executions += 1
            counters.infer_ns += total_ns - queue_ns
            counters.last_inference_ms = time.time_ns() // 1_000_000
            batch = counters.batches.setdefault(request.rows, BatchStatistics())
            batch.count += 1
            batch.infer_ns += total_ns - queue_ns
        if not self._running:
            self._idle.set()
