"""gRPC's TraceSetting and LogSettings, and how a gRPC request is traced.

`server.grpc.door` and `server.grpc.stream` come here, for requests only while tracing is on.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from tritonclient.grpc import service_pb2 as pb

from schedulers.reply import Reply
from schedulers.request import InferRequest
from server.dataplane import DataPlane
from server.errors import InvalidRequest
from server.http2.call import Call
from server.http2.exchange import Exchange
from server.logs import settings as log_settings
from server.routing.table import Target
from server.served import Served
from server.settings.trace_settings import Given
from server.trace.record import GRPC, Received, Trace, following

_CHOICE_OF = {bool: "bool_param", int: "uint32_param", str: "string_param"}

Answer = Callable[[Reply], None]


def trace_setting(message: pb.TraceSettingRequest, dataplane: DataPlane) -> pb.TraceSettingResponse:
    """Change what the message names, then tell the settings. Raises InvalidRequest, Unsupported."""
    given: Given = {name: list(one.value) or None for name, one in message.settings.items()}
    if given:
        dataplane.change_trace_settings(message.model_name, given)
    answer = pb.TraceSettingResponse()
    for name, texts in dataplane.trace_settings(message.model_name).items():
        answer.settings[name].value.extend(texts)
    return answer


def log_setting(message: pb.LogSettingsRequest) -> pb.LogSettingsResponse:
    """The same for the log."""
    log_settings.change(_values(message.settings))
    answer = pb.LogSettingsResponse()
    for name, value in log_settings.read().items():
        setattr(answer.settings[name], _CHOICE_OF[type(value)], value)
    return answer


def _values(settings: Mapping[str, pb.LogSettingsRequest.SettingValue]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, one in settings.items():
        choice = one.WhichOneof("parameter_choice")
        if choice is None:
            raise InvalidRequest(f"no value for log setting '{name}'")
        values[name] = getattr(one, choice)
    return values


class Followed(NamedTuple):
    """What `DataPlane.submit` is given."""

    served: Served
    request: InferRequest
    target: Target | None = None


def submit_followed(
    dataplane: DataPlane, known: Followed, call: Call, answer: Answer
) -> tuple[Reply, Answer]:
    """`DataPlane.submit` with a trace, if it is to have one, and `answer` as that notes it."""
    received = received_by(call, known.request)
    reply, trace = dataplane.submit_followed(known.served, known.request, received, known.target)
    return reply, answer if trace is None else partial(_answer_followed, trace, answer)


def _answer_followed(trace: Trace, answer: Answer, reply: Reply) -> None:
    with following(trace):
        try:
            trace.answered(reply.result())
        except Exception as error:  # noqa: BLE001 - whatever it is, `answer` answers it
            trace.failed(error)
        trace.sending()
        answer(reply)
        trace.sent()


def received_by(call: Exchange, request: InferRequest) -> Received:
    """Its message arrived at once; what came before belongs to the connection."""
    headers = [(name.encode(), _bytes(value)) for name, value in call.metadata]
    return Received(GRPC, request.arrived_ns, request.arrived_ns, headers)


def _bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode()
