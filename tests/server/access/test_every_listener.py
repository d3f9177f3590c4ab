"""Every REST route and every RPC, for everybody: no token, an unknown or expired one, every role
with every scope; at a gate that is open and at one that requires tokens.

The cases come from the tables of routes, and what is expected from what the routes are for.
"""

import base64
import http.client
from collections.abc import Iterator, Mapping
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2
from tritonclient.grpc import service_pb2 as pb

from control.access.scopes import Action, allows
from server.access.permissions import RPCS
from server.rest.openapi.paths import RestOperation, each_path
from support.access import GRANTS, PRINCIPALS, Gated, gated

THROUGH, UNKNOWN, FORBIDDEN = "through", "unauthenticated", "forbidden"
STRANGERS = ("", "nobodys")
TOKENS = (*STRANGERS, "expired", *PRINCIPALS)
MODEL = "echo"
Asked = tuple[Action, str] | None


def expected(token: str, asked: Asked, required: bool) -> str:
    if asked is None:
        return THROUGH
    if token in STRANGERS:
        return UNKNOWN if required else THROUGH
    if token == "expired":
        return UNKNOWN
    return THROUGH if allows(PRINCIPALS[token], *asked) else FORBIDDEN


@pytest.fixture(scope="module", params=[False, True], ids=["open", "token"])
def listeners(request: pytest.FixtureRequest) -> Iterator[tuple[Gated, bool]]:
    with gated(request.param, *GRANTS) as opened:
        yield opened, request.param


def asked_of_rest(operation: RestOperation) -> Asked:
    name = MODEL if "/models/{model}" in operation.path else ""
    changes = operation.verb == "POST" and not operation.path.endswith("/index")
    match operation.tag:
        case "Health":
            return (Action.READ, MODEL) if name else None
        case "Inference":
            return Action.INFER, MODEL
        case "Server" | "Models":
            return Action.READ, name
        case "Repository" | "Settings" | "Shared memory":
            return (Action.OPERATE, "") if changes else (Action.READ, name)
    raise AssertionError(f"teach this test what '{operation.tag}' asks for")


def rest_cases() -> list[tuple[str, str, Asked]]:
    found: list[tuple[str, str, Asked]] = []
    for path, operation in each_path():
        names = {"model": MODEL, "version": "1", "repository": "r", "region": "r"}
        asked = asked_of_rest(operation)
        found.append((operation.verb, path.format(**names), asked))
        if operation.verb == "GET":
            found.append(("HEAD", path.format(**names), asked))
    return found


def test_rest_lets_through_who_may_and_nobody_else(listeners: tuple[Gated, bool]) -> None:
    gate, required = listeners
    line = http.client.HTTPConnection("127.0.0.1", gate.http_port, timeout=60)
    wrong = []
    for verb, path, asked in rest_cases():
        for token in TOKENS:
            outcome = of_rest(line, verb, path, token)
            if outcome != (wanted := expected(token, asked, required)):
                wrong.append((verb, path, token, outcome, wanted))
    line.close()
    assert not wrong


def of_rest(line: http.client.HTTPConnection, verb: str, path: str, token: str) -> str:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    line.request(verb, path, headers=headers)
    response = line.getresponse()
    response.read()
    if response.status == 401:
        assert response.getheader("WWW-Authenticate") == 'Bearer realm="modelyard"'
    return {401: UNKNOWN, 403: FORBIDDEN}.get(response.status, THROUGH)


def test_the_metrics_are_for_those_who_may_read(listeners: tuple[Gated, bool]) -> None:
    gate, required = listeners
    line = http.client.HTTPConnection("127.0.0.1", gate.metrics_port, timeout=60)
    for token in TOKENS:
        wanted = expected(token, (Action.READ, ""), required)
        assert of_rest(line, "GET", "/metrics", token) == wanted, token
    line.close()


def test_an_unknown_path_is_for_those_who_may_read(listeners: tuple[Gated, bool]) -> None:
    gate, required = listeners
    line = http.client.HTTPConnection("127.0.0.1", gate.http_port, timeout=60)
    for token in TOKENS:
        wanted = expected(token, (Action.READ, ""), required)
        assert of_rest(line, "GET", "/v2/nothing", token) == wanted, token
    line.close()


def message_of(method: str) -> Message:
    """What the method takes, about the model where it can be about one."""
    if method in ("Check", "Watch"):
        return health_pb2.HealthCheckRequest()
    service = pb.DESCRIPTOR.services_by_name["GRPCInferenceService"]
    kind = GetMessageClass(service.methods_by_name[method].input_type)
    fields = {field.name for field in kind.DESCRIPTOR.fields} & {"name", "model_name"}
    shared = "SharedMemory" in method
    return kind(**{} if shared else dict.fromkeys(fields, MODEL))


def asked_of_rpc(method: str) -> Asked:
    if method in ("ServerLive", "ServerReady", "Check", "Watch"):
        return None
    if method in ("ModelInfer", "ModelStreamInfer"):
        return Action.INFER, MODEL
    if method.endswith(("Register", "Unregister", "Load", "Unload")):
        return Action.OPERATE, ""
    about = message_of(method)
    return Action.READ, getattr(about, "name", "") or getattr(about, "model_name", "")


def changing() -> Mapping[str, Message]:
    """RPCs that read or change: the messages that would change something."""
    trace, logs = pb.TraceSettingRequest(model_name=MODEL), pb.LogSettingsRequest()
    trace.settings["nothing"].value.append("1")
    logs.settings["nothing"].bool_param = True
    return {"TraceSetting": trace, "LogSettings": logs}


def test_grpc_lets_through_who_may_and_nobody_else(listeners: tuple[Gated, bool]) -> None:
    gate, required = listeners
    cases: list[tuple[str, Message, Asked]] = [
        (method, message_of(method), asked_of_rpc(method)) for method in RPCS
    ]
    cases += [(method, message, (Action.OPERATE, "")) for method, message in changing().items()]
    wrong = []
    with grpc.insecure_channel(gate.grpc) as channel:
        for method, message, asked in cases:
            for token in TOKENS:
                outcome = of_rpc(channel, method, message, token)
                if outcome != (wanted := expected(token, asked, required)):
                    wrong.append((method, token, outcome, wanted))
    assert not wrong


def of_rpc(channel: grpc.Channel, method: str, message: Message, token: str) -> str:
    """Whether the first answer came, or why not."""
    health = method in ("Check", "Watch")
    service = "grpc.health.v1.Health" if health else "inference.GRPCInferenceService"
    call: Any = channel.stream_stream(f"/{service}/{method}")
    metadata = [("triton_grpc_error", "true")]
    if token:
        metadata.append(("authorization", f"Bearer {token}"))
    answers = call(iter([message.SerializeToString()]), metadata=metadata, timeout=60)
    refused = {
        grpc.StatusCode.UNAUTHENTICATED: UNKNOWN,
        grpc.StatusCode.PERMISSION_DENIED: FORBIDDEN,
    }
    try:
        next(answers)
        return THROUGH
    except grpc.RpcError:
        code = answers.code()
    finally:
        answers.cancel()
    return "late" if code == grpc.StatusCode.DEADLINE_EXCEEDED else refused.get(code, THROUGH)


def test_the_token_may_be_the_password_of_basic(listeners: tuple[Gated, bool]) -> None:
    gate, _ = listeners
    shown = base64.b64encode(b"anybody:viewer_infer:other").decode()
    line = http.client.HTTPConnection("127.0.0.1", gate.http_port, timeout=60)
    line.request("GET", f"/v2/models/{MODEL}", headers={"Authorization": f"Basic {shown}"})
    assert line.getresponse().status == 403
    line.close()
