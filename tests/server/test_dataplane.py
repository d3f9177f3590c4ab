"""A running sequence on a route without a sticky key: only the arm where it began has a say.

The weights are turned once the sequence runs, so that each draw hits the other arm.
"""

import http.client
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc as stubs

from control.desired import DesiredArm, DesiredRoute, DesiredState
from schedulers.request import InferRequest
from server.routing.table import HEADER_NAME
from server.settings.trace_config import TraceConfig
from server.trace.record import Trace
from server.trace.sampling import Sampler
from server.trace.tracing import Tracing
from support.access import Gated, gated
from support.server import identity_config

DECOUPLED = identity_config("parts", extra="model_transaction_policy { decoupled: true }")
OTHER_INPUT = identity_config("strange").replace("INPUT0", "OTHER")
SEQUENCE = 7


class Answer(NamedTuple):
    """Who answered, by its name and by what the answer says of the route; or why nobody did."""

    model: str
    arm: str
    error: str = ""


class Kept:
    """A sink that keeps the traces."""

    queue_size, batch_size, delay_secs = 100, 1, 0.0

    def __init__(self) -> None:
        self.traces: list[Trace] = []
        self.written = threading.Event()

    def write(self, traces: Sequence[Trace]) -> int:
        self.traces += traces
        return 0

    def retire(self, sampler: Sampler) -> None:
        if sampler.settings.level:
            self.written.set()

    def close(self) -> None: ...


KEPT = Kept()


@pytest.fixture(scope="module")
def opened() -> Iterator[Gated]:
    tracing = Tracing(TraceConfig(file="kept"), KEPT)
    with gated(
        models=("began", "drawn"), configs=(DECOUPLED, OTHER_INPUT), tracing=tracing
    ) as listeners:
        yield listeners
        assert tracing.close()


def by_infer(listeners: Gated, **terms: Any) -> Answer:
    tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}
    return _posted(listeners, "infer", {"inputs": [tensor], "parameters": terms})


def by_generate(listeners: Gated, **terms: Any) -> Answer:
    return _posted(listeners, "generate", {"INPUT0": [1, 2], **terms})


def by_nested_generate(listeners: Gated, **terms: Any) -> Answer:
    return _posted(listeners, "generate", {"INPUT0": [1, 2], "parameters": terms})


def _posted(listeners: Gated, verb: str, body: dict[str, Any]) -> Answer:
    line = http.client.HTTPConnection("127.0.0.1", listeners.http_port, timeout=60)
    line.request("POST", f"/v2/models/public/{verb}", json.dumps(body))
    answer = line.getresponse()
    document = json.loads(answer.read())
    line.close()
    arm = answer.getheader(HEADER_NAME) or ""
    return Answer(document.get("model_name", ""), arm, document.get("error", ""))


def by_call(listeners: Gated, **terms: Any) -> Answer:
    with grpc.insecure_channel(listeners.grpc) as channel:
        stub = stubs.GRPCInferenceServiceStub(channel)
        try:
            answer, done = stub.ModelInfer.with_call(_message(**terms), timeout=60)
        except grpc.RpcError as error:
            return Answer("", dict(error.trailing_metadata()).get(HEADER_NAME, ""), str(error))
    return Answer(answer.model_name, dict(done.trailing_metadata()).get(HEADER_NAME, ""))


def by_stream(listeners: Gated, **terms: Any) -> Answer:
    with grpc.insecure_channel(listeners.grpc) as channel:
        stub = stubs.GRPCInferenceServiceStub(channel)
        (answer,) = stub.ModelStreamInfer(iter([_message(**terms)]), timeout=60)
    found = answer.infer_response
    return Answer(
        found.model_name, found.parameters[HEADER_NAME].string_param, answer.error_message
    )


def _message(**terms: Any) -> pb.ModelInferRequest:
    tensor = pb.ModelInferRequest.InferInputTensor(name="INPUT0", datatype="FP32", shape=[1, 2])
    made = pb.ModelInferRequest(model_name="public", inputs=[tensor])
    made.raw_input_contents.append(np.array([1, 2], np.float32).tobytes())
    for key, value in terms.items():
        choice = "bool_param" if isinstance(value, bool) else "int64_param"
        setattr(made.parameters[key], choice, value)
    return made


ASK: list[Callable[..., Answer]] = [by_infer, by_generate, by_nested_generate, by_call, by_stream]


def _set_once(request: InferRequest, name: str, value: object) -> None:
    assert not hasattr(request, name), f"a request's {name} is changed after it was made"
    object.__setattr__(request, name, value)


@pytest.fixture(params=ASK)
def ask(
    opened: Gated, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Answer]]:
    """Asks over one protocol, on a sequence that is running on the arm `began`; a request that is
    changed after it was made is an error."""
    monkeypatch.setattr(InferRequest, "__setattr__", _set_once)

    def asked(**terms: Any) -> Answer:
        return request.param(opened, sequence_id=SEQUENCE, **terms)

    turn(opened, "began", "drawn")
    assert asked(sequence_start=True) == Answer("began", "began@1;began")
    yield asked
    turn(opened, "began", "drawn")
    asked(sequence_end=True)


def turn(listeners: Gated, *models: str) -> None:
    """Let every draw hit the first of `models`."""
    weights = (10_000, *(0 for _ in models[1:]))
    arms = tuple(
        DesiredArm(model, model, 1, "", n) for model, n in zip(models, weights, strict=True)
    )
    state = DesiredState(routes=(DesiredRoute("public", arms, "salt"),))
    listeners.on_loop(lambda: listeners.dataplane.routing.use(state))


def errors(listeners: Gated, arm: str) -> int:
    rows = listeners.dataplane.routing.windows.rows()
    return sum(window.errors for key, window in rows if key[2] == arm)


BEGAN = Answer("began", "began@1;began")


def test_it_is_answered_though_the_drawn_arm_is_not_ready(
    opened: Gated, ask: Callable[..., Answer]
) -> None:
    (instance,) = opened.dataplane.models.get("drawn", 1).instances
    turn(opened, "drawn", "began")
    before = errors(opened, "drawn")
    instance.ready = False  # type: ignore[misc]
    try:
        assert [ask(), ask()] == [BEGAN, BEGAN]
        assert ask(sequence_end=True) == BEGAN
        assert errors(opened, "drawn") == before
        assert "is not at ready state" in ask().error  # what is new goes where it is drawn
        assert errors(opened, "drawn") == before + 1
    finally:
        instance.ready = True  # type: ignore[misc]


@pytest.mark.parametrize("drawn", ["parts", "strange", "gone"])
def test_it_is_answered_though_the_drawn_arm_takes_no_such_request(
    opened: Gated, ask: Callable[..., Answer], drawn: str
) -> None:
    turn(opened, drawn, "began")
    assert [ask(), ask()] == [BEGAN, BEGAN]
    assert errors(opened, drawn) == 0


@contextmanager
def traced(listeners: Gated) -> Iterator[list[Trace]]:
    """Inside, every request is traced; the traces, when it has ended."""
    change = listeners.dataplane.tracing.change
    KEPT.traces.clear()
    KEPT.written.clear()
    listeners.on_loop(lambda: change("", {"trace_level": ["TIMESTAMPS"], "trace_rate": ["1"]}))
    yield KEPT.traces
    listeners.on_loop(lambda: change("", {"trace_level": ["OFF"]}))
    assert KEPT.written.wait(60), "the traces were not written"


def test_its_trace_names_the_version_that_answered(
    opened: Gated, ask: Callable[..., Answer]
) -> None:
    turn(opened, "drawn", "began")
    with traced(opened) as traces:
        assert ask() == BEGAN
    assert [(one.model, one.version, one.arm, one.error) for one in traces] == [
        ("began", 1, "began@1;began", None)
    ]


def test_what_is_refused_leaves_it_where_it_runs_and_is_traced(
    opened: Gated, ask: Callable[..., Answer]
) -> None:
    turn(opened, "drawn", "began")
    with traced(opened) as traces:
        assert ask(priority=-1, sequence_end=True).error
    (trace,) = traces
    assert trace.arm == "began@1;began"
    assert "priority" in (trace.error or "")
    assert ask() == BEGAN
