"""Traces as OpenTelemetry spans, exported over OTLP/HTTP (protobuf).

Imported only when the mode is "opentelemetry"; the packages come with the extra `otel`. Called by
the thread of `server.trace.writer`, so neither building a span nor a slow collector costs the event
loop anything. Span and event names are those of Triton's OpenTelemetry mode.
"""

import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from opentelemetry import trace as api
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON

from server.trace.context import ParentSpan
from server.trace.record import Trace, TracePoint
from server.trace.sampling import Sampler

_log = logging.getLogger(__name__)

EXPORT_SECS = 5.0
"""Longest one export may take, its retries included."""

_ROOT = "InferRequest"


class SpanExport:
    """The sink of mode "opentelemetry".

    `url`: the collector, "" for OTEL_EXPORTER_OTLP_* or http://localhost:4318/v1/traces.
    `resource`: attributes of this service; OTEL_RESOURCE_ATTRIBUTES are added.
    `options`: Triton's bsp_max_queue_size, bsp_max_export_batch_size, bsp_schedule_delay (ms),
    here in traces and not in spans; OTEL_BSP_* otherwise.
    """

    def __init__(self, url: str, resource: Mapping[str, str], options: Mapping[str, int]) -> None:
        self.queue_size = options.get("bsp_max_queue_size") or _whole("MAX_QUEUE_SIZE", 2048)
        self.batch_size = options.get("bsp_max_export_batch_size") or _whole(
            "MAX_EXPORT_BATCH_SIZE", 512
        )
        self.delay_secs = (
            options.get("bsp_schedule_delay") or _whole("SCHEDULE_DELAY", 5000)
        ) / 1000
        self._exporter = OTLPSpanExporter(endpoint=url or None, timeout=EXPORT_SECS)
        self._ended = _SpanCollector()
        self._ids = _GivenIds()
        provider = TracerProvider(
            sampler=ALWAYS_ON,
            resource=Resource.create(dict(resource)),
            shutdown_on_exit=False,
            id_generator=self._ids,
        )
        provider.add_span_processor(self._ended)
        self._tracer = provider.get_tracer("modelyard")
        self._failing = False

    def write(self, traces: Sequence[Trace]) -> int:
        """Export them as one batch; all are lost when the collector does not take it."""
        for trace in traces:
            self._build(trace)
        spans, self._ended.spans = self._ended.spans, []
        done = self._exporter.export(spans) is SpanExportResult.SUCCESS
        if not done and not self._failing:
            _log.error("traces are lost: the OpenTelemetry collector refuses them")
        if done and self._failing:
            _log.info("the OpenTelemetry collector accepts traces again")
        self._failing = not done
        return 0 if done else len(traces)

    def retire(self, sampler: Sampler) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        self._exporter.shutdown()  # type: ignore[no-untyped-call]

    def _build(self, trace: Trace) -> None:
        """Root → the model's span → queue and compute, with Triton's points as events; the root of
        a call from inside the server lies in the span of the model that has called."""
        shift_ns = time.time_ns() - time.monotonic_ns()
        at = {name: ns + shift_ns for name, ns in trace.points}
        begin, end = min(at.values()), max(at.values())
        kind = api.SpanKind.INTERNAL if trace.parent_number else api.SpanKind.SERVER
        context = _context(trace.parent, is_remote=not trace.parent_number)
        own = trace.span
        with self._ids.given(trace_id=0 if own is None else own.trace_id):
            root = self._open(_ROOT, context, begin, kind)
        with self._ids.given(span_id=0 if own is None else own.span_id):
            model = self._open(trace.model, _inside(root), at.get("REQUEST_START", begin))
        for span in (root, model):
            span.set_attributes(_attributes(trace))
        if "QUEUE_START" in at:
            queued_until = at.get("COMPUTE_START", at.get("REQUEST_END", end))
            queue = self._open("queue", _inside(model), at["QUEUE_START"])
            queue.end(queued_until)
        if "COMPUTE_START" in at:
            compute = self._open("compute", _inside(model), at["COMPUTE_START"])
            _add_events(compute, trace.points, shift_ns, "COMPUTE_")
            compute.end(at["COMPUTE_END"])
        _add_events(model, trace.points, shift_ns, "REQUEST_", "QUEUE_")
        _add_events(root, trace.points, shift_ns, "HTTP_", "GRPC_", "INFER_")
        if trace.error is not None:
            for span in (root, model):
                span.set_status(api.Status(api.StatusCode.ERROR, trace.error))
        model.end(at.get("REQUEST_END", end))
        root.end(end)

    def _open(
        self,
        name: str,
        context: Context,
        start_ns: int,
        kind: api.SpanKind = api.SpanKind.INTERNAL,
    ) -> api.Span:
        return self._tracer.start_span(name, context, kind, start_time=start_ns)


class _SpanCollector(SpanProcessor):
    """Collects spans as they end, for the next export."""

    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        self.spans.append(span)

    def on_start(self, span: Span, parent_context: Context | None = None) -> None: ...


class _GivenIds(RandomIdGenerator):
    """Random ids, but for spans that calls have named as their parent before they were built."""

    def __init__(self) -> None:
        self._trace_id = self._span_id = 0

    @contextmanager
    def given(self, trace_id: int = 0, span_id: int = 0) -> Iterator[None]:
        """Inside, a new trace and a new span get these; 0 for any."""
        self._trace_id, self._span_id = trace_id, span_id
        try:
            yield
        finally:
            self._trace_id = self._span_id = 0

    def generate_trace_id(self) -> int:
        return self._trace_id or super().generate_trace_id()

    def generate_span_id(self) -> int:
        return self._span_id or super().generate_span_id()


def _context(parent: ParentSpan | None, *, is_remote: bool) -> Context:
    """The caller's span as parent, or none at all: never what this thread has as its own."""
    if parent is None:
        return Context()
    caller = api.SpanContext(
        parent.trace_id,
        parent.span_id,
        is_remote=is_remote,
        trace_flags=api.TraceFlags(int(parent.sampled)),
        trace_state=api.TraceState.from_header([parent.state]),
    )
    return _inside(api.NonRecordingSpan(caller))


def _inside(span: api.Span) -> Context:
    return api.set_span_in_context(span, Context())


def _attributes(trace: Trace) -> dict[str, str | int]:
    found: dict[str, str | int] = {
        "triton.model_name": trace.model,
        "triton.model_version": trace.version,
        "triton.trace_id": trace.number,
        "triton.trace_parent_id": trace.parent_number,
        "network.protocol.name": trace.wire.name,
    }
    if trace.request_id:
        found["triton.request_id"] = trace.request_id
    if trace.arm:
        found["modelyard.route"] = trace.arm
    return found


def _add_events(
    span: api.Span, points: Sequence[TracePoint], shift_ns: int, *prefixes: str
) -> None:
    for name, ns in points:
        if name.startswith(prefixes):
            span.add_event(name, timestamp=ns + shift_ns)


def _whole(name: str, default: int) -> int:
    text = os.environ.get("OTEL_BSP_" + name, "")
    return int(text) if text.isdigit() and int(text) else default
