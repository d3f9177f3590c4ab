"""OpenTelemetry mode: spans arrive at a real OTLP/HTTP receiver, inside the caller's trace."""

import gzip
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from server.settings.trace_config import OPENTELEMETRY, TraceConfig
from server.settings.trace_settings import TraceSettings
from server.trace.context import ParentSpan, parent_in
from server.trace.otel import SpanExport
from server.trace.record import HTTP, RequestReceipt
from server.trace.tracing import Tracing
from support.scripts import CALLER, write_python, write_rows
from support.server import Server, running, write_identity

TRACE_ID, SPAN_ID = "0af7651916cd43dd8448eb211c12666c", "b7ad6b7169242424"
AROUND = """
platform: "ensemble"
max_batch_size: 8
input { name: "INPUT0" data_type: TYPE_FP32 dims: -1 }
output { name: "OUTPUT0" data_type: TYPE_FP32 dims: -1 }
ensemble_scheduling {
  step {
    model_name: "echo"
    model_version: -1
    input_map { key: "INPUT0" value: "INPUT0" }
    output_map { key: "OUTPUT0" value: "OUTPUT0" }
  }
}
"""
SAMPLED = {"traceparent": f"00-{TRACE_ID}-{SPAN_ID}-01", "tracestate": "vendor=1,other=2"}
NOT_SAMPLED = {"traceparent": f"00-{TRACE_ID}-{SPAN_ID}-00"}


class Collector:
    """An OTLP/HTTP receiver. While `refuses`, it answers 400."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.resources: list[dict[str, str]] = []
        self.refuses = False
        collector = self

        class Receiver(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                assert self.path == "/v1/traces"
                if not collector.refuses:
                    collector.take(ExportTraceServiceRequest.FromString(body))
                answer = ExportTraceServiceResponse().SerializeToString()
                self.send_response(400 if collector.refuses else 200)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1/traces"

    def take(self, request: ExportTraceServiceRequest) -> None:
        for one in request.resource_spans:
            attributes = one.resource.attributes
            self.resources.append({pair.key: pair.value.string_value for pair in attributes})
            for scope in one.scope_spans:
                self.spans += scope.spans

    def of(self, request_id: str) -> dict[str, Span]:
        """The spans of one request by name; waits until there are all four."""
        found: dict[str, Span] = {}

        def complete() -> bool:
            roots = [
                span for span in self.spans if told(span).get("triton.request_id") == request_id
            ]
            if not roots:
                return False
            trace = roots[0].trace_id
            number = told(roots[0])["triton.trace_id"]
            found.update({span.name: span for span in self.spans if span.trace_id == trace})
            found.update({s.name: s for s in roots if told(s)["triton.trace_id"] == number})
            return len(found) >= 4

        eventually(complete, f"the spans of {request_id}")
        return found


def told(span: Span) -> dict[str, Any]:
    """The span's attributes."""
    return {pair.key: pair.value.string_value or pair.value.int_value for pair in span.attributes}


def events(span: Span) -> list[str]:
    return [event.name for event in span.events]


def eventually(true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline, f"waited 60 s for {what}"
        time.sleep(0.01)


@contextmanager
def collecting() -> Iterator[Collector]:
    collector = Collector()
    thread = threading.Thread(target=collector.server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield collector
    finally:
        collector.server.shutdown()
        collector.server.server_close()
        thread.join()


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with collecting() as one:
        yield one


@pytest.fixture(scope="module")
def server(collector: Collector, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    repository = tmp_path_factory.mktemp("models")
    write_identity(repository, "echo")
    (repository / "around" / "1").mkdir(parents=True)
    (repository / "around" / "config.pbtxt").write_text(AROUND)
    write_rows(repository, "rows")
    write_python(repository, "caller", CALLER)
    with running(
        repository,
        trace_config=[
            "mode=opentelemetry",
            f"opentelemetry,url={collector.url}",
            "opentelemetry,resource=test.key=test.value",
            "opentelemetry,bsp_schedule_delay=20",
            "level=TIMESTAMPS",
            "rate=0",
        ],
        id="watched",
    ) as one:
        yield one


@pytest.fixture
def client(server: Server) -> Iterator[triton.InferenceServerClient]:
    one = triton.InferenceServerClient(server.http)
    yield one
    one.update_trace_settings(settings={"trace_rate": None, "trace_count": None})
    one.close()


def infer(
    client: triton.InferenceServerClient,
    request_id: str,
    headers: dict[str, str] | None = None,
    model: str = "echo",
) -> None:
    tensor = triton.InferInput("INPUT0", [1, 1], "FP32")
    tensor.set_data_from_numpy(np.array([[1]], np.float32))
    client.infer(model, [tensor], request_id=request_id, headers=dict(headers or {}))


def test_a_steps_span_lies_in_the_span_of_its_ensemble(
    client: triton.InferenceServerClient, collector: Collector
) -> None:
    client.update_trace_settings(settings={"trace_rate": "1"})
    infer(client, "around-echo", model="around")
    assert_inside(collector, "around-echo", "around", "echo")


def test_a_calls_span_lies_in_the_span_of_its_model_also_of_a_remote_caller(
    client: triton.InferenceServerClient, collector: Collector
) -> None:
    tensor = triton.InferInput("IN", [1, 1], "FP32")
    tensor.set_data_from_numpy(np.array([[1]], np.float32))
    order = {"callee": "rows", "output": "IN"}
    client.infer("caller", [tensor], request_id="calls", headers=dict(SAMPLED), parameters=order)
    outer = assert_inside(collector, "calls", "caller", "rows", call_id="")
    assert (outer.trace_id.hex(), outer.parent_span_id.hex()) == (TRACE_ID, SPAN_ID)


def test_a_call_made_after_its_callers_trace_was_exported_lies_in_the_callers_span(
    collector: Collector,
) -> None:
    config = TraceConfig(mode=OPENTELEMETRY, settings=TraceSettings(level=("TIMESTAMPS",), rate=1))
    tracing = Tracing(config, SpanExport(collector.url, {}, {"bsp_schedule_delay": 1}))
    caller = tracing.begin("leaver", 1, RequestReceipt(HTTP, 1, 2))
    assert caller is not None
    caller.request_id = "left"
    caller.end()
    eventually(lambda: tracing.written == 1, "the caller's spans")
    call = tracing.begin_child(caller, "echo", 1)
    call.request_id = "left"
    call.end()
    assert tracing.close()
    assert_inside(collector, "left", "leaver", "echo")


def assert_inside(
    collector: Collector, request_id: str, caller: str, callee: str, call_id: str | None = None
) -> Span:
    """The root of the callee's spans lies in the caller's span; the root of the caller's."""

    def root_of(model: str, wanted: str) -> Span | None:
        return next(
            (
                span
                for span in collector.spans
                if span.name == "InferRequest"
                and told(span)["triton.model_name"] == model
                and told(span).get("triton.request_id", "") == wanted
            ),
            None,
        )

    inner_id = request_id if call_id is None else call_id
    eventually(lambda: root_of(caller, request_id) is not None, "the caller's spans")
    eventually(lambda: root_of(callee, inner_id) is not None, "the callee's spans")
    outer, inner = root_of(caller, request_id), root_of(callee, inner_id)
    assert outer is not None
    assert inner is not None
    (model,) = (
        span for span in collector.spans if span.name == caller and span.trace_id == outer.trace_id
    )
    assert model.parent_span_id == outer.span_id
    assert (inner.trace_id, inner.parent_span_id) == (outer.trace_id, model.span_id)
    assert told(inner)["triton.trace_parent_id"] == told(outer)["triton.trace_id"]
    return outer


def test_spans_lie_inside_each_other_with_tritons_events(
    client: triton.InferenceServerClient, collector: Collector
) -> None:
    client.update_trace_settings(settings={"trace_rate": "1"})
    infer(client, "nested")
    spans = collector.of("nested")
    root, model = spans["InferRequest"], spans["echo"]
    assert root.parent_span_id == b""
    assert root.kind == Span.SPAN_KIND_SERVER
    assert model.parent_span_id == root.span_id
    for child in ("queue", "compute"):
        assert spans[child].parent_span_id == model.span_id
        assert root.start_time_unix_nano <= spans[child].start_time_unix_nano
        assert spans[child].end_time_unix_nano <= root.end_time_unix_nano
    assert events(root) == [
        "HTTP_RECV_START",
        "HTTP_RECV_END",
        "INFER_RESPONSE_COMPLETE",
        "HTTP_SEND_START",
        "HTTP_SEND_END",
    ]
    assert events(model) == ["REQUEST_START", "QUEUE_START", "REQUEST_END"]
    assert events(spans["compute"]) == [
        "COMPUTE_START",
        "COMPUTE_INPUT_END",
        "COMPUTE_OUTPUT_START",
        "COMPUTE_END",
    ]
    attributes = told(model)
    assert (attributes["triton.model_name"], attributes["triton.model_version"]) == ("echo", 1)
    assert abs(root.end_time_unix_nano - time.time_ns()) < 60e9


def test_resource_says_who_is_speaking(
    client: triton.InferenceServerClient, collector: Collector
) -> None:
    infer(client, "resource", SAMPLED)
    collector.of("resource")
    resource = collector.resources[-1]
    assert (resource["service.name"], resource["test.key"]) == ("watched", "test.value")


def test_sampled_caller_is_followed_whatever_the_rate(
    client: triton.InferenceServerClient, collector: Collector
) -> None:
    client.update_trace_settings(settings={"trace_rate": "0", "trace_count": "0"})
    infer(client, "caller", SAMPLED)
    root = collector.of("caller")["InferRequest"]
    assert (root.trace_id.hex(), root.parent_span_id.hex()) == (TRACE_ID, SPAN_ID)
    assert root.trace_state == "vendor=1,other=2"


def test_grpc_callers_are_followed_too(server: Server, collector: Collector) -> None:
    tensor = triton_grpc.InferInput("INPUT0", [1, 1], "FP32")
    tensor.set_data_from_numpy(np.array([[1]], np.float32))
    with triton_grpc.InferenceServerClient(server.grpc) as client:
        client.infer("echo", [tensor], request_id="over grpc", headers=dict(SAMPLED))
    root = collector.of("over grpc")["InferRequest"]
    assert (root.trace_id.hex(), root.parent_span_id.hex()) == (TRACE_ID, SPAN_ID)
    assert events(root)[0] == "GRPC_WAITREAD_START"
    assert told(root)["network.protocol.name"] == "grpc"


def test_caller_that_is_not_sampled_is_not_traced(
    client: triton.InferenceServerClient, collector: Collector
) -> None:
    client.update_trace_settings(settings={"trace_rate": "1"})
    infer(client, "unsampled", NOT_SAMPLED)
    infer(client, "after it")
    collector.of("after it")
    assert not [s for s in collector.spans if told(s).get("triton.request_id") == "unsampled"]


def test_refused_request_is_an_error_span(
    server: Server, client: triton.InferenceServerClient, collector: Collector
) -> None:
    client.update_trace_settings(settings={"trace_rate": "1"})
    assert server.post("/v2/models/echo/infer", {"inputs": []})[0] == 400

    def failed() -> list[Span]:
        return [s for s in collector.spans if s.status.code == Status.STATUS_CODE_ERROR]

    eventually(lambda: len(failed()) >= 2, "the failed spans")
    assert "expected 1 inputs but got 0" in failed()[0].status.message


def test_settings_tell_the_mode_and_its_url(
    client: triton.InferenceServerClient, collector: Collector
) -> None:
    settings = client.get_trace_settings()
    assert (settings["trace_mode"], settings["url"]) == ("opentelemetry", collector.url)
    assert "trace_file" not in settings


def test_collector_that_refuses_loses_traces_and_they_are_counted(tmp_path: Path) -> None:
    write_identity(tmp_path, "echo")
    with collecting() as collector:
        collector.refuses = True
        flags = [
            "mode=opentelemetry",
            f"url={collector.url}",
            "level=TIMESTAMPS",
            "rate=1",
            "bsp_schedule_delay=5",
        ]
        with running(tmp_path, trace_config=flags) as server:
            with triton.InferenceServerClient(server.http) as client:
                infer(client, "lost")
            eventually(lambda: dropped(server) == 1, "the lost trace to be counted")
            refusal = "the OpenTelemetry collector refuses them"
            eventually(lambda: refusal in server.log(), "the refusal to be told")


def dropped(server: Server) -> float:
    text = server.get("/metrics", port=server.metrics_port)[1].decode()
    (line,) = [one for one in text.splitlines() if one.startswith("modelyard_traces_dropped ")]
    return float(line.split()[1])


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"00-0-0-01",
        f"ff-{TRACE_ID}-{SPAN_ID}-01".encode(),
        f"00-{'0' * 32}-{SPAN_ID}-01".encode(),
        f"00-{TRACE_ID}-{'0' * 16}-01".encode(),
        f"00-{TRACE_ID}-{SPAN_ID}-01-more".encode(),
        f"00-{TRACE_ID.upper()}-{SPAN_ID}-01".encode(),
    ],
)
def test_invalid_traceparent_counts_as_none(header: bytes) -> None:
    assert parent_in([(b"traceparent", header)]) is None


def test_traceparent_of_a_later_version_is_understood() -> None:
    header = f"01-{TRACE_ID}-{SPAN_ID}-01-more".encode()
    expected = ParentSpan(int(TRACE_ID, 16), int(SPAN_ID, 16), True, "")
    assert parent_in([(b"traceparent", header)]) == expected


def test_tracestate_of_several_headers_is_joined_and_too_long_a_one_dropped() -> None:
    parent = (b"traceparent", SAMPLED["traceparent"].encode())
    both = parent_in([parent, (b"tracestate", b"a=1"), (b"tracestate", b"b=2")])
    assert both is not None
    assert both.state == "a=1,b=2"
    long = parent_in([parent, (b"tracestate", b"a=" + b"1" * 600)])
    assert long is not None
    assert long.state == ""
