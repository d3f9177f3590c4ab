"""Routes at the listeners of a gateway: REST infer and generate, gRPC calls and streams."""

import http.client
import json
import time
from collections.abc import Iterator
from typing import Any

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc as stubs

from control.desired import DesiredArm, DesiredExperiment, DesiredRoute, DesiredState, Match, Mirror
from control.experiments import stamp as stamps
from server.process.lifecycle import Lifecycle
from server.routing.experiments.route_experiments import STAMP_NAME
from server.routing.table import HEADER_NAME
from support.access import Gated, gated, grant

TOKEN = "secret"
STABLE, CANDIDATE = (
    DesiredArm("stable", "one", 1, "", 5_000),
    DesiredArm("candidate", "two", 1, "", 5_000),
)
ROUTE = DesiredRoute("public", (STABLE, CANDIDATE), "salt", "header:x-user")


@pytest.fixture(scope="module")
def opened() -> Iterator[Gated]:
    with gated(False, grant(TOKEN), models=("one", "two", "own")) as listeners:
        yield listeners


@pytest.fixture
def listeners(opened: Gated) -> Gated:
    use(opened, ROUTE)
    return opened


def use(listeners: Gated, *routes: DesiredRoute) -> None:
    state = DesiredState(routes=routes, aliases={"one": {"best": 1}})
    listeners.on_loop(lambda: listeners.dataplane.routing.use(state))


def changed(**terms: Any) -> DesiredRoute:
    fields = {name: getattr(ROUTE, name) for name in DesiredRoute.__struct_fields__}
    return DesiredRoute(**{**fields, **terms})


def rest(
    listeners: Gated, path: str = "public/infer", parameters: Any = None, **headers: str
) -> tuple[int, str, Any]:
    """Status, what the response says of a route, and its document."""
    body: dict[str, Any] = {
        "inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}]
    }
    if path.endswith("generate"):
        body = {"INPUT0": [1, 2], **(parameters or {})}
    elif parameters:
        body["parameters"] = parameters
    line = http.client.HTTPConnection("127.0.0.1", listeners.http_port, timeout=60)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    line.request("POST", f"/v2/models/{path}", json.dumps(body), named)
    answer = line.getresponse()
    document = json.loads(answer.read())
    line.close()
    return answer.status, answer.getheader(HEADER_NAME) or "", document


def message(name: str = "public", version: str = "", **parameters: Any) -> pb.ModelInferRequest:
    tensor = pb.ModelInferRequest.InferInputTensor(name="INPUT0", datatype="FP32", shape=[1, 2])
    made = pb.ModelInferRequest(model_name=name, model_version=version, inputs=[tensor])
    made.raw_input_contents.append(np.array([1, 2], np.float32).tobytes())
    for key, value in parameters.items():
        choice = "int64_param" if isinstance(value, int) else "string_param"
        setattr(made.parameters[key], choice, value)
    return made


def call(listeners: Gated, asked: pb.ModelInferRequest, **metadata: str) -> tuple[str, str]:
    """The model that answered, and what the trailers say of a route."""
    with grpc.insecure_channel(listeners.grpc) as channel:
        named = [(name.replace("_", "-"), value) for name, value in metadata.items()]
        stub = stubs.GRPCInferenceServiceStub(channel)
        answer, done = stub.ModelInfer.with_call(asked, metadata=named, timeout=60)
    return answer.model_name, dict(done.trailing_metadata()).get(HEADER_NAME, "")


def test_both_protocols_send_a_unit_to_the_same_arm_and_say_so(listeners: Gated) -> None:
    met = set()
    for number in range(20):
        user = f"user{number}"
        status, said, document = rest(listeners, x_user=user)
        assert status == 200
        assert said in ("one@1;stable", "two@1;candidate")
        assert document["model_name"] == said[:3]
        for _ in range(2):  # the second time its head is known
            assert call(listeners, message(), x_user=user) == (said[:3], said)
        assert rest(listeners, "public/generate", x_user=user)[1] == said
        met.add(said)
    assert len(met) == 2


def test_a_parameter_a_token_or_a_sequence_can_be_the_unit(listeners: Gated) -> None:
    use(listeners, changed(unit="parameter:customer"))
    for customer in (7, 8, 9, 10, "x"):
        said = {
            rest(listeners, parameters={"customer": customer})[1],
            rest(listeners, "public/generate", {"customer": customer})[1],
            call(listeners, message(customer=customer))[1],
        }
        assert len(said) == 1
    use(listeners, changed(unit="key"))
    bearer = f"Bearer {TOKEN}"
    assert len({rest(listeners, Authorization=bearer)[1] for _ in range(10)}) == 1
    assert len({rest(listeners)[1] for _ in range(40)}) == 2  # nobody known: a draw each time
    use(listeners, changed(unit="sequence"))
    assert len({call(listeners, message(sequence_id=7))[1] for _ in range(10)}) == 1


def test_an_explicit_version_an_alias_and_other_models_bypass_the_route(listeners: Gated) -> None:
    own = changed(name="own", arms=(DesiredArm("stable", "one", 1, "", 10_000),))
    use(listeners, own)
    assert rest(listeners, "own/infer")[1] == "one@1;stable"
    assert rest(listeners, "own/versions/1/infer")[1:] == (
        "",
        rest(listeners, "own/versions/1/infer")[2],
    )
    assert rest(listeners, "own/versions/1/infer")[2]["model_name"] == "own"
    assert call(listeners, message("own", "1")) == ("own", "")
    assert call(listeners, message("two")) == ("two", "")


def test_rules_and_the_kill_switch_decide_first(listeners: Gated) -> None:
    rule = Match("x-tester", "yes", "candidate")
    none = (DesiredArm("stable", "one", 1, "", 10_000), DesiredArm("candidate", "two", 1, "", 0))
    use(listeners, changed(arms=none, matches=(rule,)))
    assert rest(listeners, x_tester="yes")[1] == "two@1;candidate"
    assert call(listeners, message(), x_tester="yes")[1] == "two@1;candidate"
    assert rest(listeners, x_tester="no")[1] == "one@1;stable"
    use(listeners, changed(arms=none, matches=(rule,), only="stable"))
    assert rest(listeners, x_tester="yes")[1] == "one@1;stable"


def test_a_sequence_stays_where_it_began_when_the_weights_change(listeners: Gated) -> None:
    def ask(**more: bool) -> tuple[str, str]:
        asked = message(sequence_id=77)
        for name, value in more.items():
            asked.parameters[name].bool_param = value
        return call(listeners, asked, x_user="ada")

    here = (DesiredArm("stable", "one", 1, "", 10_000), DesiredArm("candidate", "two", 1, "", 0))
    use(listeners, changed(arms=here))
    assert ask(sequence_start=True)[1] == "one@1;stable"
    use(listeners, changed(only="candidate", arms=here))
    assert ask()[1] == "one@1;stable"
    parameters = {"sequence_id": 77}
    assert rest(listeners, parameters=parameters, x_user="ada")[1] == "one@1;stable"
    assert ask(sequence_end=True)[1] == "one@1;stable"
    assert ask()[1] == "two@1;candidate"


def test_each_message_of_a_stream_is_routed_and_the_trailers_name_all_arms(
    listeners: Gated,
) -> None:
    use(listeners, changed(unit="parameter:user"))
    with grpc.insecure_channel(listeners.grpc) as channel:
        asked = [message(user=f"u{number}") for number in range(20)]
        stream = stubs.GRPCInferenceServiceStub(channel).ModelStreamInfer(iter(asked), timeout=60)
        answers = [one.infer_response for one in stream]
        trailers = [value for name, value in stream.trailing_metadata() if name == HEADER_NAME]
    said = [one.parameters[HEADER_NAME].string_param for one in answers]
    assert [text[:3] for text in said] == [one.model_name for one in answers]
    assert sorted(set(said)) == sorted(trailers) == ["one@1;stable", "two@1;candidate"]


COLOUR = DesiredExperiment("e1", "public", ("stable", "candidate"), buckets=10_000)
KEY = b"k" * 32


def watch(listeners: Gated) -> None:
    """With the experiment on the route."""
    routes = (changed(unit="parameter:user"),)
    state = DesiredState(routes=routes, experiments=(COLOUR,), stamp_key=KEY)
    listeners.on_loop(lambda: listeners.dataplane.routing.use(state))


def test_the_signed_stamp_comes_in_the_trailers_of_a_call(listeners: Gated) -> None:
    watch(listeners)
    for number in range(10):
        user = f"u{number}"
        with grpc.insecure_channel(listeners.grpc) as channel:
            stub = stubs.GRPCInferenceServiceStub(channel)
            answer, done = stub.ModelInfer.with_call(message(user=user), timeout=60)
        trailers = dict(done.trailing_metadata())
        stamp = stamps.read(KEY, trailers[STAMP_NAME], time.time())
        assert stamp.unit == stamps.unit_key(user).hex()
        said = f"{stamp.route.model}@{stamp.route.version};{stamp.route.arm}"
        assert (trailers[HEADER_NAME], answer.model_name) == (said, stamp.route.model)
        assert stamp.route.subject == COLOUR.id


def test_each_message_of_a_stream_has_the_stamp_of_its_own_unit(listeners: Gated) -> None:
    watch(listeners)
    users = [f"u{number}" for number in range(6)]
    with grpc.insecure_channel(listeners.grpc) as channel:
        asked = [message(user=user) for user in users]
        stream = stubs.GRPCInferenceServiceStub(channel).ModelStreamInfer(iter(asked), timeout=60)
        found = [one.infer_response.parameters[STAMP_NAME].string_param for one in stream]
    units = {stamps.read(KEY, text, time.time()).unit for text in found}
    assert units == {stamps.unit_key(user).hex() for user in users}


def test_the_questions_about_a_route_are_answered_for_its_stable_arm(listeners: Gated) -> None:
    line = http.client.HTTPConnection("127.0.0.1", listeners.http_port, timeout=60)
    for path, name in (("public", "one"), ("public/config", "one")):
        line.request("GET", f"/v2/models/{path}")
        assert json.loads(line.getresponse().read())["name"] == name
    line.request("GET", "/v2/models/public/ready")
    answer = line.getresponse()
    answer.read()
    line.close()
    assert answer.status == 200
    with grpc.insecure_channel(listeners.grpc) as channel:
        stub = stubs.GRPCInferenceServiceStub(channel)
        assert stub.ModelReady(pb.ModelReadyRequest(name="public")).ready
        assert list(stub.ModelMetadata(pb.ModelMetadataRequest(name="public")).versions) == ["1"]


def test_an_arm_that_leads_nowhere_answers_with_its_error_and_is_counted(listeners: Gated) -> None:
    gone = DesiredArm("stable", "one", 99, "", 10_000)
    use(
        listeners,
        changed(name="gone", arms=(gone,)),
        changed(name="dangling", arms=(DesiredArm("stable", "one", 0, "nobody", 10_000),)),
    )
    status, said, _ = rest(listeners, "gone/infer")
    assert (status, said) == (503, "one@99;stable")
    with pytest.raises(grpc.RpcError) as refused:
        call(listeners, message("gone"))
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    assert dict(refused.value.trailing_metadata())[HEADER_NAME] == "one@99;stable"
    status, _, document = rest(listeners, "dangling/infer")
    assert status == 404
    assert (
        "the arm 'stable' of the route 'dangling' leads to an alias of 'one'" in document["error"]
    )
    windows = {key[0]: window for key, window in listeners.dataplane.routing.windows.rows()}
    assert (windows["gone"].requests, windows["gone"].errors) == (2, 2)


def test_what_clients_get_wrong_is_not_counted(listeners: Gated) -> None:
    use(listeners, changed(name="careful"))
    line = http.client.HTTPConnection("127.0.0.1", listeners.http_port, timeout=60)
    line.request("POST", "/v2/models/careful/infer", b'{"inputs": []}')
    assert line.getresponse().status == 400
    line.close()
    assert rest(listeners, "careful/infer")[0] == 200
    rows = [one for key, one in listeners.dataplane.routing.windows.rows() if key[0] == "careful"]
    assert (sum(one.requests for one in rows), sum(one.errors for one in rows)) == (1, 0)


def test_a_mirror_gets_copies_and_the_client_hears_nothing_of_them(listeners: Gated) -> None:
    arms = (DesiredArm("stable", "one", 1, "", 10_000), DesiredArm("candidate", "two", 1, "", 0))
    use(listeners, changed(name="shadowed", arms=arms, mirrors=(Mirror("candidate", 10_000),)))
    for _ in range(10):
        assert rest(listeners, "shadowed/infer")[1] == "one@1;stable"
        assert call(listeners, message("shadowed"))[0] == "one"

    def copies() -> list[tuple[int, int]]:
        rows = listeners.dataplane.routing.windows.rows()
        return [(one.requests, one.errors) for key, one in rows if key[0] == "shadowed" and key[5]]

    until = time.monotonic() + 60
    while copies() != [(20, 0)]:
        assert time.monotonic() < until, copies()


def test_what_is_not_loaded_yet_while_the_server_starts_counts_against_nobody() -> None:
    def asked() -> tuple[int, int]:
        status, _, _ = rest(listeners, "early/infer")
        (window,) = [
            one for key, one in listeners.dataplane.routing.windows.rows() if key[0] == "early"
        ]
        return status, window.errors

    lifecycle = Lifecycle(starting=True)
    with gated(False, grant(TOKEN), models=("one",), lifecycle=lifecycle) as listeners:
        use(listeners, changed(name="early", arms=(DesiredArm("stable", "one", 99, "", 10_000),)))
        assert asked() == (503, 0)
        listeners.on_loop(lifecycle.finish_starting)
        assert asked() == (503, 1)
