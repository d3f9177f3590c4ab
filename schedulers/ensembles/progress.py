"""Carry one request through an ensemble: call its steps as they become possible, and answer.

Made by `schedulers.ensembles.scheduler` for each request. On the event loop's thread; only a
decoupled step's responses take a task to be read.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from schedulers.calls import ModelCall, ModelCaller
from schedulers.counters import StepCounters
from schedulers.ensembles.policy.run import EnsembleRun
from schedulers.ensembles.policy.static_run import StaticRun
from schedulers.ensembles.policy.step_call import StepCall
from schedulers.ensembles.policy.stream_hold import PATIENCE_NS, STUCK_NS, HoldVerdict, StreamHold
from schedulers.ensembles.step_errors import in_ensemble
from schedulers.errors import DeadlineExceeded, EnsembleFailed
from schedulers.policy.queue import Ticket
from schedulers.reply import Reply
from schedulers.request import CallContext, InferResponse

MOST_UNREAD = 16
"""Responses that the client has not read yet when a decoupled step is read no further."""

Ended = Callable[["EnsembleProgress", Exception | None], None]


class EnsembleProgress:
    """One request: also the `ReplyCarrier` of its reply. `queue_ns`: spent in its steps' queues."""

    __slots__ = (
        "_again",
        "_caller",
        "_context",
        "_counters",
        "_ended",
        "_going_on",
        "_loop",
        "_open",
        "_over",
        "_progress",
        "_room",
        "_run",
        "_tasks",
        "_timer",
        "_unread",
        "queue_ns",
        "ticket",
    )

    def __init__(
        self,
        ticket: Ticket,
        run: EnsembleRun | StaticRun,
        context: CallContext,
        caller: ModelCaller,
        loop: asyncio.AbstractEventLoop,
        ended: Ended,
        counters: Sequence[StepCounters],
    ) -> None:
        self.ticket = ticket
        self.queue_ns = 0
        self._run = run
        self._context = context
        self._caller = caller
        self._loop = loop
        self._ended = ended
        self._counters = counters
        self._open: dict[Reply, tuple[StepCall, int]] = {}
        self._tasks: set[asyncio.Task[None]] | None = None
        self._unread = self._progress = 0
        self._room: asyncio.Event | None = None
        self._over = self._going_on = self._again = False
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self.ticket.source = self
        deadline_ns = self.ticket.request.deadline_ns
        if deadline_ns:
            seconds = max(0.0, (deadline_ns - time.monotonic_ns()) / 1e9)
            self._timer = self._loop.call_later(seconds, self._late)
        self._go_on()

    # the reader's

    def taken(self) -> None:
        self._unread -= 1
        self._wake_readers()

    def cancel(self) -> None:
        """The client has gone: so have its steps."""
        self._end(None)

    def _late(self) -> None:
        self.fail(DeadlineExceeded("Request timeout expired"))

    # the way

    def fail(self, error: Exception) -> None:
        """End the request with this error, and all that runs for it."""
        if not self._over:
            self._end(error)
            self.ticket.fail(error)

    def _fail_in(self, error: Exception) -> None:
        self.fail(in_ensemble(self.ticket.request.model, error))

    def _go_on(self) -> None:
        """Start what can start, and answer what is complete."""
        self._again = True
        if self._going_on:  # a call was answered while this was starting others
            return
        self._going_on = True
        run = self._run
        try:
            while self._again and not self._over:
                self._again = False
                self._answer()
                for call in run.take():  # of a request that is over, none is made
                    if not self._over:
                        self._call(call)
            if not self._over and run.finished:
                self._finish()
        except EnsembleFailed as error:
            self._fail_in(error)
        finally:
            self._going_on = False
            self._count_skips()

    def _call(self, call: StepCall) -> None:
        began_ns = time.monotonic_ns()
        try:
            reply = self._caller.call(self._model_call(call))
        except Exception as error:  # noqa: BLE001 - whatever refuses a step refuses the request
            self._counters[call.step.step.number].count(0, 0, 0, failed=True)
            self._fail_in(error)
            return
        self._open[reply] = call, began_ns
        if call.step.decoupled:
            self._read_in_task(reply, call, began_ns)
        else:
            reply.then(self._answered)

    def _model_call(self, call: StepCall) -> ModelCall:
        """All that belongs to the request goes along; positional, for it is made for each step."""
        request, step = self.ticket.request, call.step.step
        return ModelCall(
            step.model,
            call.inputs,
            self._context,
            step.version,
            self._run.asked(call),
            request.parameters,
            request.priority,
            request.timeout_us,
            request.deadline_ns,
            request.sequence,
            request.id,
            request.principal,
            True,  # covered
            True,  # keeps_version
            request.trace,
            request.number,
            request.part,
            request.client_id,
        )

    def _answered(self, reply: Reply) -> None:
        """The one response of a step is there, or its error."""
        now_ns = time.monotonic_ns()
        found = self._open.pop(reply, None)
        if self._over or found is None:
            return
        call, began_ns = found
        self._count(reply, call, began_ns, now_ns)
        try:
            response = reply.result()
            self._run.answered(call, response.outputs)
            self._run.ended(call)
        except Exception as error:  # noqa: BLE001 - a step's error is the request's
            self._fail_in(error)
            return
        self._go_on()
        if self._room is not None and not self._over and not self._going_on:
            self._room.set()

    def _read_in_task(self, reply: Reply, call: StepCall, began_ns: int) -> None:
        if self._room is None or self._tasks is None:
            self._room, self._tasks = asyncio.Event(), set()
        task = self._loop.create_task(self._read(reply, call, began_ns, self._room))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _wake_readers(self) -> None:
        if self._room is not None:
            self._room.set()

    async def _read(self, reply: Reply, call: StepCall, began_ns: int, room: asyncio.Event) -> None:
        """The responses of a decoupled step, as fast as they are worked on and read."""
        hold = StreamHold()
        try:
            async for response in reply:
                if self._over:
                    return
                if response.outputs:
                    self._run.answered(call, response.outputs)
                    self._go_on()
                while not self._over and not self._may_read(hold, call):
                    room.clear()
                    with suppress(TimeoutError):
                        async with asyncio.timeout(PATIENCE_NS / 1e9):
                            await room.wait()
            self._open.pop(reply, None)
            self._count(reply, call, began_ns, time.monotonic_ns())
            self._run.ended(call)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - a step's error is the request's
            if not self._over:
                self._open.pop(reply, None)
                self._count(reply, call, began_ns, time.monotonic_ns())
                self._fail_in(error)
            reply.cancel()
            return
        self._go_on()
        room.set()

    def _may_read(self, hold: StreamHold, call: StepCall) -> bool:
        """Raises EnsembleFailed for a stream behind which nothing goes on."""
        if self._unread >= MOST_UNREAD:
            hold.excuse()
            return False
        number, now_ns = call.step.step.number, time.monotonic_ns()
        waiting = self._run.waiting_behind(number)
        verdict = hold.decide(waiting, self._progress, now_ns)
        if verdict is HoldVerdict.FULL and hold.is_stuck(self._executing_behind(number), now_ns):
            model = call.step.step.model
            raise EnsembleFailed(
                f"step {number} ('{model}') is read no further, because {waiting.calls} calls of "
                f"the steps behind it wait for their turn, and those whose turn it is have waited "
                f"for an instance for {STUCK_NS // 10**9} s; their models may wait for '{model}' "
                "in turn: give it more instances, or raise max_inflight_requests"
            )
        return verdict is HoldVerdict.READ

    def executing(self) -> bool:
        return any(reply.executing for reply in self._open)

    def _executing_behind(self, number: int) -> bool:
        """A script that waits for its calls does not go on before they do."""
        if calls := self._context.root.script_calls:
            return any(reply.executing for reply in calls)
        behind = (one for one, (call, _) in self._open.items() if call.branch.path_to(number))
        return any(reply.executing for reply in behind)

    def _count(self, reply: Reply, call: StepCall, began_ns: int, now_ns: int) -> None:
        self._progress += 1
        queue_ns = max(0, reply.started_ns - began_ns)
        self.queue_ns += queue_ns
        rows = 1
        if call.items is None:
            for array in call.inputs.values():
                rows = len(array)
                break
        failed = reply.error is not None
        counters = self._counters[call.step.step.number]
        counters.count(rows, queue_ns, now_ns - began_ns, failed=failed)

    def _count_skips(self) -> None:
        run = self._run
        if isinstance(run, EnsembleRun) and run.skips:  # no other leaves any out
            for number, rows in run.skips:
                self._counters[number].skip(rows)
            run.skips.clear()

    # the answer

    def _answer(self) -> None:
        for outputs in self._run.responses():
            is_last = self._run.is_unary
            if is_last:
                self._end(None)
            self._unread += 1
            self._send(outputs, last=is_last)

    def _send(self, outputs: Any, last: bool) -> None:
        request = self.ticket.request
        self.ticket.send(
            InferResponse(request.id, request.model, request.version, outputs, last=last)
        )

    def _finish(self) -> None:
        """Nothing runs any more."""
        if missing := self._run.missing():
            self._fail_in(EnsembleFailed(missing))
            return
        self._end(None)
        self.ticket.close()

    def _end(self, error: Exception | None) -> None:
        """Let go of everything, once; what still runs for the request is cancelled."""
        if self._over:
            return
        self._over = True
        if self._timer is not None:
            self._timer.cancel()
        if self._open:
            running, self._open = self._open, {}
            for reply, (call, _) in running.items():
                self._counters[call.step.step.number].cancelled += 1
                reply.cancel()
        self._count_skips()
        self._wake_readers()
        self._context.end()
        self.ticket.source = None
        if trace := self.ticket.request.trace:
            started_ns = self.ticket.started_ns
            trace.executed(started_ns, 0, time.monotonic_ns() - started_ns, 0)
        self._ended(self, error)
