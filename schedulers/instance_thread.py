"""One instance, the thread it runs on, and the batch it is busy with, up to its answers.

Batches come from `schedulers.batching` through a C-level queue; the loop is called back once per
batch, by one `call_soon_threadsafe`. From `Run.answer` the replies wake the front ends.
"""

import asyncio
import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any, cast

from backends.errors import BackendError, ExecutionFailed, FaultyModel
from backends.limits import ExecutionLimit
from backends.process.instance import HostedInstance
from backends.seam import (
    Batch,
    BatchResult,
    CancellableInstance,
    Instance,
    ResponseSender,
    SequenceRows,
    Tensors,
)
from schedulers.counters import BatchStatistics, Counters, count_failure, count_success
from schedulers.policy.cores import Lease
from schedulers.policy.queue import Ticket
from schedulers.request import InferRequest, InferResponse

NICENESS = 5
"""Executions yield to the event loop: with every core computing, the loop still answers at once."""

OPEN_STREAMS = 1024
"""Requests of a decoupled model one instance may have open; the others wait in the queue."""

_log = logging.getLogger(__name__)

MOST_NAMED = 32
"""Ids of requests in one line of the log."""


class Run:
    """One batch on its way through an instance; `outcome` is set by the lane's thread.

    `requests`: how many the tickets stand for. `outlets`: of a decoupled model, where each ticket's
    responses go; otherwise empty. `abandoned`: it hangs, and its tickets have been told. `cpu_ns`:
    CPU time of its thread, of a loop-safe instance.
    """

    __slots__ = (
        "abandoned",
        "batch",
        "cpu_ns",
        "lease",
        "outcome",
        "outlets",
        "requests",
        "rows",
        "started_ns",
        "tickets",
    )

    def __init__(
        self,
        tickets: Sequence[Ticket],
        batched: bool,
        started_ns: int,
        lease: Lease,
        sequences: SequenceRows | None = None,
    ) -> None:
        members = [ticket.request for ticket in tickets]
        rows = [member.rows for member in members]
        self.batch = Batch(members, rows, batched, sequences)
        self.tickets = tickets
        self.rows = sum(rows)
        self.requests = len(rows)
        self.started_ns = started_ns
        self.lease = lease
        self.outlets: Sequence[ResponseSender] = ()
        self.abandoned = False
        self.outcome: BatchResult | BackendError | None = None
        self.cpu_ns = 0

    @property
    def busy_ns(self) -> int:
        """How long the instance computed; 0 when it failed."""
        outcome = self.outcome
        if not isinstance(outcome, BatchResult):
            return 0
        return outcome.input_ns + outcome.infer_ns + outcome.output_ns

    def answer(self, counters: Counters, now_ns: int) -> None:
        """Answer every ticket, once there is an outcome; nobody is left waiting, nobody gets
        another's rows."""
        outcome, requests = self.outcome, self.requests
        if not isinstance(outcome, BatchResult) or len(outcome.results) != requests:
            error = _error_of(outcome, requests)
            for ticket in self.tickets:
                fail(ticket, error, counters, now_ns)
            return
        self.count_execution(outcome, counters)
        counters.input_ns += requests * outcome.input_ns
        counters.infer_ns += requests * outcome.infer_ns
        counters.output_ns += requests * outcome.output_ns
        self.answer_each(outcome, counters, now_ns)

    def answer_each(self, outcome: BatchResult, counters: Counters, now_ns: int) -> None:
        """Answer every ticket with its own result."""
        self.answer_tickets(self.tickets, outcome, counters, now_ns)

    def answer_tickets(
        self, tickets: Sequence[Ticket], outcome: BatchResult, counters: Counters, now_ns: int
    ) -> None:
        """`outcome` has a result for each of these."""
        parameters = outcome.parameters
        for index, (ticket, result) in enumerate(zip(tickets, outcome.results, strict=True)):
            if ticket.request.trace is not None:
                ticket.request.trace.executed(
                    self.started_ns, outcome.input_ns, outcome.infer_ns, outcome.output_ns
                )
            if isinstance(result, Exception):
                fail(ticket, result, counters, now_ns)
                continue
            response = _succeed(ticket, result, counters, self.started_ns, now_ns)
            if response is None:
                continue
            if parameters and index in parameters:
                response.parameters = parameters[index]
            ticket.send(response)

    def fail_hung(self, limit: ExecutionLimit, counters: Counters, now_ns: int) -> None:
        """It has outlasted the limit on a thread that cannot be ended; tell its requests."""
        request = self.tickets[0].request
        error = ExecutionFailed(
            f"model '{request.model}' version {request.version} has executed for more than "
            f"{limit.secs:g} s (the limit is {limit}; 0 for none); it runs in the "
            "server itself and cannot be ended, so this instance is out of use until it returns"
        )
        _log.error("%s: %s", whose(self), error)
        for ticket in self.tickets:
            fail(ticket, error, counters, now_ns)

    def count_execution(self, outcome: BatchResult, counters: Counters) -> None:
        """Count the batch and where its time went, whatever became of its requests."""
        counters.inferences += self.rows
        counters.executions += 1
        counters.last_inference_ms = time.time_ns() // 1_000_000
        batch = counters.batches.get(self.rows)
        if batch is None:
            batch = counters.batches[self.rows] = BatchStatistics()
        batch.count += 1
        batch.input_ns += outcome.input_ns
        batch.infer_ns += outcome.infer_ns
        batch.output_ns += outcome.output_ns


def _error_of(outcome: BatchResult | Exception | None, requests: int) -> Exception:
    """What to tell the requests of a run that has no result for each."""
    if isinstance(outcome, BatchResult):
        return FaultyModel(
            f"{len(outcome.results)} results for {requests} requests. This is a bug."
        )
    return outcome or FaultyModel("no outcome. This is a bug.")


def _succeed(
    ticket: Ticket, outputs: Tensors, counters: Counters, started_ns: int, now_ns: int
) -> InferResponse | None:
    """The response to send; None when the ticket has failed after all."""
    request = ticket.request
    if request.requested_outputs:
        try:
            outputs = chosen(request, outputs)
        except FaultyModel as error:
            fail(ticket, error, counters, now_ns)
            return None
    count_success(ticket, counters, started_ns, now_ns)
    return InferResponse(request.id, request.model, request.version, outputs)


def chosen(request: InferRequest, outputs: Tensors) -> Tensors:
    """The outputs the request asked for, in its order. Raises `FaultyModel` when one is missing."""
    there = {name: outputs[name] for name in request.requested_outputs if name in outputs}
    if len(there) != len(request.requested_outputs):
        missing = [name for name in request.requested_outputs if name not in outputs]
        raise FaultyModel(
            f"model '{request.model}' version {request.version} did not produce the requested "
            f"output(s) {', '.join(missing)}"
        )
    return there


def fail(ticket: Ticket, error: Exception, counters: Counters, now_ns: int) -> None:
    """Count a ticket's requests as failed, and tell them."""
    count_failure(counters, error, now_ns - ticket.request.arrived_ns, ticket.count)
    ticket.fail(error)


class CancelListener:
    """Tells an executing instance that one member's client has gone; a reply's `Source`."""

    __slots__ = ("_batch", "_instance", "_member")

    def __init__(self, instance: CancellableInstance, batch: Batch, member: int) -> None:
        self._instance = instance
        self._batch = batch
        self._member = member

    def taken(self) -> None:
        """Of no interest: there is one response."""

    def cancel(self) -> None:
        self._instance.cancel(self._batch, self._member)


class InstanceThread:
    """Owns an instance from now on, including its `close`. The thread starts with the first
    batch, so that a model nobody calls costs no thread.

    `streams`: whether the model is decoupled, `open` how many of its requests are unfinished;
    `can_cancel`: whether the instance can be told of a cancelled request while it executes;
    `loop_safe`: whether it may also `run_inline`.
    """

    def __init__(
        self,
        instance: Instance,
        loop: asyncio.AbstractEventLoop,
        done: Callable[[Run], None],
        number: int = 0,
    ) -> None:
        self.instance = instance
        self.number = number
        self.streams: bool = getattr(instance, "streams", False)
        self.can_cancel: bool = hasattr(instance, "cancel")
        self.loop_safe: bool = getattr(instance, "loop_safe", False) and not self.streams
        self.open = 0
        self._streamed = asyncio.Event()
        self.running: Run | None = None
        self._loop = loop
        self._done = done
        self._inbox: SimpleQueue[Run | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    @property
    def alone(self) -> bool:
        """Whether each request must come here by itself."""
        return self.can_cancel or self.streams

    @property
    def free(self) -> bool:
        return self.running is None and self.instance.ready and self.open < OPEN_STREAMS

    @property
    def hung(self) -> bool:
        """Whether it is out of use because an execution hangs."""
        return self.running is not None and self.running.abandoned

    def start(self, run: Run) -> None:
        """Execute a batch; `done(run)` follows on the loop. Call only when `free`."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="instance", daemon=True)
            self._thread.start()
        self._note(run)
        if self.can_cancel and not run.outlets:
            for index, ticket in enumerate(run.tickets):
                ticket.source = CancelListener(
                    cast(CancellableInstance, self.instance), run.batch, index
                )
        self._inbox.put(run)

    def run_inline(self, run: Run) -> None:
        """Execute a short batch on the caller's thread, which is the loop's; `done(run)` has been
        called when it returns. Call only when `free` and `loop_safe`."""
        self._note(run)
        self._execute(run)
        self._ended(run)

    def _note(self, run: Run) -> None:
        self.running = run
        for ticket in run.tickets:
            ticket.started_ns, ticket.instance = run.started_ns, self.number

    def stream_ended(self) -> None:
        """One of the `open` requests is finished."""
        self.open -= 1
        if not self.open:
            self._streamed.set()

    async def all_streamed(self) -> None:
        """Wait until no request is open; call it when no other will be opened."""
        if self.open:
            self._streamed.clear()
            await self._streamed.wait()

    async def close(self, patience_s: float, give_up: Callable[[Run], None]) -> None:
        """Close the instance once its batch has ended, or after `patience_s` in any case: then
        `give_up(run)` comes first, and its process is killed, if it has one."""
        await asyncio.to_thread(self._join, patience_s)
        if (running := self.running) is not None:  # the end of a batch is told before the thread's
            _log.warning(
                "%s: the execution has not ended and is abandoned; closing anyway", whose(running)
            )
            give_up(running)
        await asyncio.to_thread(self.instance.close)

    def _join(self, patience_s: float) -> None:
        if self._thread is not None:
            self._inbox.put(None)
            self._thread.join(patience_s)

    def _work(self) -> None:
        with contextlib.suppress(OSError, AttributeError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
        while (run := self._inbox.get()) is not None:
            self._execute(run)
            try:
                self._loop.call_soon_threadsafe(self._ended, run)
            except RuntimeError:  # the loop is closed: the process ends, and nobody waits
                return
            del run

    def _execute(self, run: Run) -> None:
        instance: Any = self.instance
        began_ns = time.thread_time_ns() if self.loop_safe else 0
        try:
            if run.outlets:
                run.outcome = instance.stream(run.batch, run.outlets)
            else:
                run.outcome = instance.execute(run.batch)
        except BackendError as error:
            run.outcome = error
        except BaseException as error:  # noqa: BLE001 - a runtime's bug, or its panic
            _log.exception("%s: its backend broke its contract. This is a bug.", whose(run))
            run.outcome = ExecutionFailed(f"{type(error).__name__}: {error}. This is a bug.")
        if self.loop_safe:
            run.cpu_ns = time.thread_time_ns() - began_ns

    def hangs(self, before_ns: int) -> Run | None:
        """The run that has executed since before then on a thread of this process, which nobody
        can end; worker processes are ended by their host."""
        run = self.running
        if run is None or run.started_ns > before_ns or run.outlets:
            return None
        return None if isinstance(self.instance, HostedInstance) else run

    def abandon(self, run: Run) -> None:
        """Nobody may execute here until the run has ended after all."""
        run.abandoned = True
        self.instance.ready = False

    def _ended(self, run: Run) -> None:
        self.running = None
        if run.abandoned:
            self.instance.ready = True
        self._done(run)


def whose(run: Run) -> str:
    """The model a batch is for and the ids of its requests, for the log."""
    requests = [ticket.request for ticket in run.tickets]
    models = {f"model '{request.model}' version {request.version}" for request in requests}
    members = run.batch.members
    ids = [member.id or "<id_unknown>" for member in members[:MOST_NAMED]]
    if len(members) > MOST_NAMED:
        ids.append(f"and {len(members) - MOST_NAMED} more")
    return f"{', '.join(models)}, request ids {', '.join(ids)}"
