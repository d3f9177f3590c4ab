"""One traced request: what happened to it, and when. Written by the rooms it walks through.

Begun by `server.dataplane`, carried by the request (`InferRequest.trace`), ended by the front end
that answers it; then it is handed to `server.trace.writer` and belongs to that thread.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from repository.config.tensors import Array
from schedulers.errors import Cancelled
from schedulers.request import InferRequest, InferResponse
from server.settings.trace_settings import TENSORS
from server.trace.context import ParentSpan, new_span
from server.trace.sampling import Sampler


class TracePointNames(NamedTuple):
    """What a front end calls its points in time."""

    name: str
    receive: str
    send: str


HTTP = TracePointNames("http", "HTTP_RECV", "HTTP_SEND")
GRPC = TracePointNames("grpc", "GRPC_WAITREAD", "GRPC_SEND")
INSIDE = TracePointNames("call", "CALL_RECV", "CALL_SEND")
"""Of a call from inside the server, which notes no such points."""


class RequestReceipt(NamedTuple):
    """How a request came in: between which moments (`time.monotonic_ns`), with which headers
    (names in lower case)."""

    wire: TracePointNames
    start_ns: int
    end_ns: int
    headers: Iterable[tuple[bytes, bytes]] = ()


class TracePoint(NamedTuple):
    """A moment by its Triton name; on `time.monotonic_ns`."""

    name: str
    ns: int


class TracedTensor(NamedTuple):
    """A tensor as it went past; a copy, because the original's memory may be used again."""

    activity: str
    name: str
    array: Array


class Trace:
    """Points in the order in which they were noted, tensors if the level asks for them.

    Calls: `admitted` once the request is decoded, `answered` per response or `failed`, `sending`
    and `sent` around each write, `end` once. `executed` comes from the scheduler.
    """

    __slots__ = (
        "_keep",
        "_keeper",
        "arm",
        "error",
        "model",
        "number",
        "parent",
        "parent_number",
        "points",
        "request_id",
        "sampler",
        "size_bytes",
        "span",
        "tensors",
        "version",
        "wire",
    )

    def __init__(
        self,
        number: int,
        who: tuple[str, int],
        received: RequestReceipt,
        parent: ParentSpan | None,
        sampler: Sampler,
        keep: Callable[["Trace"], None],
    ) -> None:
        """`who`: the version that will answer; `keep` takes the trace over when it has ended."""
        self.number = number
        self.model, self.version = who
        self.wire = wire = received.wire
        self.parent = parent
        self.parent_number = 0
        """The trace of the request that called for this one from inside the server; 0 for none."""
        self.span: ParentSpan | None = None
        """Its own span, once a call was made for it or it has ended: calls' spans lie in it, also
        those of calls that are made later."""
        self.sampler = sampler
        self.request_id = ""
        self.arm = ""
        """Which arm of a route answers, as the response says it; "" without a route."""
        self.points = [
            TracePoint(wire.receive + "_START", received.start_ns),
            TracePoint(wire.receive + "_END", received.end_ns),
            TracePoint("REQUEST_START", time.monotonic_ns()),
        ]
        self.tensors: list[TracedTensor] = []
        self.size_bytes = 0
        self.error: str | None = None
        self._keep: Callable[[Trace], None] | None = keep
        self._keeper = keep

    def child(self, number: int, who: tuple[str, int]) -> "Trace":
        """The trace of a call that this request makes; it ends by itself."""
        now_ns = time.monotonic_ns()
        if self.span is None:
            self.span = new_span(self.parent)
        received = RequestReceipt(INSIDE, now_ns, now_ns)
        made = Trace(number, who, received, self.span, self.sampler, self._keeper)
        made.points = [TracePoint("REQUEST_START", now_ns)]
        made.parent_number = self.number
        return made

    def admitted(self, request: InferRequest) -> None:
        """It is about to be queued, and carries this trace."""
        self.request_id = request.id
        self._note("QUEUE_START")
        self._copy("TENSOR_QUEUE_INPUT", request.inputs)

    def executed(self, started_ns: int, input_ns: int, infer_ns: int, output_ns: int) -> None:
        """Its batch ran from `started_ns` on; three durations in nanoseconds."""
        infer_from = started_ns + input_ns
        output_from = infer_from + infer_ns
        self.points += (
            TracePoint("COMPUTE_START", started_ns),
            TracePoint("COMPUTE_INPUT_END", infer_from),
            TracePoint("COMPUTE_OUTPUT_START", output_from),
            TracePoint("COMPUTE_END", output_from + output_ns),
        )

    def answered(self, response: InferResponse) -> None:
        """A response is back at the front end."""
        self._note("INFER_RESPONSE_COMPLETE")
        self._copy("TENSOR_BACKEND_OUTPUT", response.outputs)

    def failed(self, error: Exception) -> None:
        """It ends with an error instead of a response."""
        self.error = str(error) or type(error).__name__

    def sending(self) -> None:
        self._note(self.wire.send + "_START")

    def sent(self) -> None:
        self._note(self.wire.send + "_END")

    def end(self) -> None:
        """Nothing more will happen to it. Idempotent."""
        if self._keep is not None:
            keep, self._keep = self._keep, None
            self._place_request_end()
            if self.span is None:
                self.span = new_span(self.parent)
            keep(self)

    def _place_request_end(self) -> None:
        """REQUEST_END stands before the last write: that is when the answer was there."""
        names = [point.name for point in self.points]
        start = self.wire.send + "_START"
        if start in names:
            last = len(names) - 1 - names[::-1].index(start)
            self.points.insert(last, TracePoint("REQUEST_END", self.points[last].ns))
        else:
            self._note("REQUEST_END")

    def _note(self, name: str) -> None:
        self.points.append(TracePoint(name, time.monotonic_ns()))

    def _copy(self, activity: str, tensors: Any) -> None:
        if TENSORS not in self.sampler.settings.level:
            return
        for name, array in tensors.items():
            self.tensors.append(TracedTensor(activity, name, np.array(array)))
            self.size_bytes += _size(array)


@contextmanager
def following(trace: Trace | None) -> Iterator[None]:
    """Inside, a request runs its course; where that ends, or fails, its trace ends."""
    try:
        yield
    except Exception as error:
        if trace is not None:
            trace.failed(error)
        raise
    except asyncio.CancelledError:  # a gRPC stream's client has gone
        if trace is not None:
            trace.failed(Cancelled("the client has disconnected"))
        raise
    finally:
        if trace is not None:
            trace.end()


def _size(array: Array) -> int:
    if array.dtype == np.object_:
        return sum(map(len, array.ravel().tolist()))
    return array.nbytes
