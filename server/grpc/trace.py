"""gRPC's TraceSetting and LogSettings, for `server.grpc.service`."""

from collections.abc import Mapping
from typing import Any

from tritonclient.grpc import service_pb2 as pb

from server.errors import InvalidRequest
from server.logs import settings as log_settings
from server.model_queries import ModelQueries
from server.settings.trace_settings import Given

_CHOICE_OF = {bool: "bool_param", int: "uint32_param", str: "string_param"}


def trace_setting(
    message: pb.TraceSettingRequest, queries: ModelQueries
) -> pb.TraceSettingResponse:
    """Change what the message names, then tell the settings. Raises InvalidRequest, Unsupported."""
    given: Given = {name: list(one.value) or None for name, one in message.settings.items()}
    if given:
        queries.change_trace_settings(message.model_name, given)
    answer = pb.TraceSettingResponse()
    for name, texts in queries.trace_settings(message.model_name).items():
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
