"""The open requests of a decoupled model: each response goes to its reader as it comes.

`schedulers.batching` opens the streams of a run before it starts; the instance sends from any
thread; what arrives on the loop becomes responses and counts here. A stream stays open until the
model ends it, also when its reader has gone: the instance is busy with it as long.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable

from backends.errors import Reschedule
from backends.response_sender import BoundedResponseSender
from backends.seam import ResponsePart, Tensors
from schedulers.counters import Counters, ResponseStatistics, count_failure, count_success
from schedulers.errors import Cancelled, DeadlineExceeded
from schedulers.instance_thread import InstanceThread, Run
from schedulers.policy.queue import Ticket
from schedulers.request import InferResponse

MOST_POSITIONS = 1000
"""Responses of one answer that are counted apart; those behind count with the last of these."""


class Streams:
    """Those of one scheduler; on the loop's thread. `ended(ticket)` is called once per stream.

    `rescheduled(ticket)` follows it where the model asks for another execution of the request,
    whose answer goes on then; without it, asking is the answer's error.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        counters: Counters,
        ended: Callable[[Ticket], None],
    ) -> None:
        self._loop = loop
        self.counters = counters
        self.rescheduled: Callable[[Ticket], None] | None = None
        self._ended = ended
        self._open: dict[_Stream, None] = {}

    def open(self, run: Run, thread: InstanceThread) -> None:
        """Give every ticket of the run an outlet; from here on each stream will end."""
        streams = [_Stream(ticket, thread, run, self) for ticket in run.tickets]
        thread.open += len(streams)
        self._open.update(dict.fromkeys(streams))
        run.outlets = [stream.outlet for stream in streams]
        for stream in streams:
            stream.start(self._loop)

    def fail(self, tickets: "set[Ticket] | None", error: Exception) -> None:
        """End the open streams of these tickets (None: of all), for the reader and for us;
        whatever the model still sends is dropped."""
        for stream in list(self._open):
            if tickets is None or stream.ticket in tickets:
                stream.receive(ResponsePart(error, last=True), time.monotonic_ns())

    def fail_lane(self, thread: InstanceThread, error: Exception) -> None:
        """End the open streams of one instance, as `fail`."""
        self.fail({stream.ticket for stream in self._open if stream.thread is thread}, error)

    def take(self, stream: "_Stream", part: ResponsePart) -> None:
        """From any thread: the model has sent a part."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to answer
            self._loop.call_soon_threadsafe(stream.receive, part, time.monotonic_ns())

    def close(self, stream: "_Stream") -> None:
        del self._open[stream]
        stream.thread.stream_ended()
        self._ended(stream.ticket)

    def count(self, position: int) -> ResponseStatistics:
        position = min(position, MOST_POSITIONS - 1)
        counts = self.counters.responses.get(position)
        if counts is None:
            counts = self.counters.responses[position] = ResponseStatistics()
        return counts


class _Stream:
    """One request's: what its model sends, on its way to the ticket."""

    def __init__(self, ticket: Ticket, thread: InstanceThread, run: Run, among: Streams) -> None:
        self.ticket = ticket
        self.thread = thread
        self.outlet = BoundedResponseSender(lambda part: among.take(self, part))
        self._among = among
        self._run = run
        self._position = 0
        self._before_ns = run.started_ns
        self._failed = False
        self._open = True
        self._timer: asyncio.TimerHandle | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self.ticket.source = self.outlet
        deadline_ns = self.ticket.request.deadline_ns
        if deadline_ns:
            seconds = max(0, deadline_ns - self._run.started_ns) / 1e9
            self._timer = loop.call_later(seconds, self._late)
        if self.ticket.cancelled:
            self.outlet.cancel()

    def receive(self, part: ResponsePart, sent_ns: int) -> None:
        """On the loop: answer, count, and close when it is the last."""
        if not self._open:
            return
        if isinstance(part.result, Reschedule) and self._among.rescheduled is not None:
            self._reschedule(self._among.rescheduled)
            return
        now_ns = time.monotonic_ns()
        if part.last and self.ticket.request.trace is not None:
            started_ns = self._run.started_ns
            self.ticket.request.trace.executed(started_ns, 0, now_ns - started_ns, 0)
        self._answer(part, sent_ns, now_ns)
        self._before_ns = now_ns
        if part.last:
            self._close(now_ns)

    def _answer(self, part: ResponsePart, sent_ns: int, now_ns: int) -> None:
        if self._failed:
            return
        infer_ns, output_ns = max(0, sent_ns - self._before_ns), now_ns - sent_ns
        counts = self._among.count(self._position)
        if self.ticket.cancelled:
            counts.cancel += 1
            counts.cancel_ns += infer_ns
        elif part.result is None:
            counts.empty += 1
            counts.empty_ns += infer_ns
        elif isinstance(part.result, Exception):
            self._count_infer(counts, infer_ns)
            counts.fail += 1
            counts.fail_ns += infer_ns + output_ns
            self._fail(part.result, now_ns)
        else:
            self._count_infer(counts, infer_ns)
            counts.output += 1
            counts.output_ns += output_ns
            counts.success += 1
            counts.success_ns += infer_ns + output_ns
            self._send(part.result, part)
        self._position += 1

    @staticmethod
    def _count_infer(counts: ResponseStatistics, infer_ns: int) -> None:
        counts.infer += 1
        counts.infer_ns += infer_ns

    def _send(self, tensors: Tensors, part: ResponsePart) -> None:
        request = self.ticket.request
        if request.requested_outputs:  # a response of a stream need not have every output
            tensors = {name: tensors[name] for name in request.requested_outputs if name in tensors}
        self.ticket.send(
            InferResponse(
                request.id,
                request.model,
                request.version,
                tensors,
                part.parameters,
                last=part.last,
            )
        )

    def _late(self) -> None:
        self._timer = None
        if self._open and not self.ticket.ended:
            self._fail(DeadlineExceeded("Request timeout expired"), time.monotonic_ns())

    def _fail(self, error: Exception, now_ns: int) -> None:
        """The reader's answer is over; the model is told, and may take its time to end."""
        self._failed = True
        request = self.ticket.request
        count_failure(self._among.counters, error, now_ns - request.arrived_ns)
        self.ticket.fail(error)
        self.outlet.cancel()

    def _reschedule(self, rescheduled: Callable[[Ticket], None]) -> None:
        """This execution is over, and the answer is not, unless its reader has it already."""
        if self._failed or self.ticket.ended:
            self._close(time.monotonic_ns())
            return
        self._open = False
        if self._timer is not None:
            self._timer.cancel()
        self.ticket.source = None
        self.outlet.end()
        self._among.close(self)
        rescheduled(self.ticket)

    def _close(self, now_ns: int) -> None:
        self._open = False
        if self._timer is not None:
            self._timer.cancel()
        ticket, counters = self.ticket, self._among.counters
        if ticket.cancelled and not self._failed:
            count_failure(counters, Cancelled(""), now_ns - ticket.request.arrived_ns)
        elif not self._failed:
            counters.infer_ns += now_ns - self._run.started_ns
            count_success(ticket, counters, self._run.started_ns, now_ns)
        ticket.close()
        ticket.source = None
        self.outlet.end()
        self._among.close(self)
