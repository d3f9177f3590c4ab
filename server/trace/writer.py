"""Take ended traces off the event loop: a bounded queue and one thread that hands them to a sink.

`server.trace.tracing` puts traces in; `server.trace.file` and `server.trace.otel` are the sinks. A
queue that is full drops the trace and counts it: tracing never makes a request wait.
"""

import logging
import threading
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from server.trace.record import Trace
from server.trace.sampling import Sampler

_log = logging.getLogger(__name__)

TENSOR_BYTES = 256 << 20
"""Bytes of tensors that may wait in the queue."""


class TraceSink(Protocol):
    """Where traces go. Used by one thread.

    `queue_size`: traces that may wait; `batch_size` and `delay_secs`: write when so many wait, or
    when the first has waited so long.
    """

    queue_size: int
    batch_size: int
    delay_secs: float

    def write(self, traces: Sequence[Trace]) -> int:
        """Write them; may block. How many were lost, their reason logged. Must not raise."""

    def retire(self, sampler: Sampler) -> None:
        """No further trace of this sampler follows."""

    def close(self) -> None:
        """No further trace follows at all."""


class TraceWriter:
    """`put`, `retire` and `close` belong to the loop's thread; the writing thread starts with the
    first trace. `put_count`, `lost` and `refused` only grow."""

    def __init__(self, sink: TraceSink) -> None:
        self._sink = sink
        self._waiting: deque[Trace | Sampler] = deque()
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._bytes_put = 0
        self._bytes_taken = 0
        self._refused = 0
        self._lost = 0
        self.written = 0

    @property
    def dropped(self) -> int:
        """Traces that went nowhere: the queue was full, or the sink failed."""
        return self._refused + self._lost

    def put(self, trace: Trace) -> None:
        """Take an ended trace over; never blocks."""
        held_bytes = self._bytes_put - self._bytes_taken
        if len(self._waiting) >= self._sink.queue_size or (
            trace.size_bytes and held_bytes + trace.size_bytes > TENSOR_BYTES
        ):
            self._refused += 1
            return
        self._bytes_put += trace.size_bytes
        self._append(trace)

    def retire(self, sampler: Sampler) -> None:
        """What the sink holds back for this sampler may be written."""
        if self._thread is not None:
            self._append(sampler)

    def close(self, patience_secs: float) -> bool:
        """Write what waits and end the thread; blocks. False when it did not end in time."""
        if self._thread is None:
            return True
        self._stopping.set()
        self._wake.set()
        self._thread.join(patience_secs)
        return not self._thread.is_alive()

    def _append(self, one: Trace | Sampler) -> None:
        self._waiting.append(one)
        if len(self._waiting) in (1, self._sink.batch_size):
            self._wake.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="traces", daemon=True)
            self._thread.start()

    def _work(self) -> None:
        """Wait for the first trace, then for more of them or for the delay, then write all."""
        stopping = self._stopping.is_set
        while not stopping() or self._waiting:
            self._wake.wait()
            self._wake.clear()
            if not stopping():
                self._wake.wait(self._sink.delay_secs)
                self._wake.clear()
            self._write_waiting()
            if stopping():
                self._wake.set()
        self._sink.close()

    def _write_waiting(self) -> None:
        traces: list[Trace] = []
        while self._waiting:
            one = self._waiting.popleft()
            if isinstance(one, Trace):
                traces.append(one)
            if traces and (isinstance(one, Sampler) or len(traces) >= self._sink.batch_size):
                self._write(traces)
                traces = []
            if isinstance(one, Sampler):
                self._sink.retire(one)
        if traces:
            self._write(traces)

    def _write(self, traces: Sequence[Trace]) -> None:
        lost = self._sink.write(traces)
        self._lost += lost
        self.written += len(traces) - lost
        self._bytes_taken += sum(trace.size_bytes for trace in traces)
