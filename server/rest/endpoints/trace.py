"""REST's trace and logging extensions: `/v2/trace/setting`, per model too, and `/v2/logging`.

`server.rest.app` puts `trace_rows` into its table. Bodies and answers are Triton's.
"""

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from server.codec.json_text import load_document
from server.dataplane import DataPlane
from server.errors import InvalidRequest
from server.logs import settings as log_settings
from server.model_queries import ModelQueries
from server.rest.endpoint import EndpointRow, json_response, model_of, read_body
from server.settings.trace_settings import Given

_BODY_LIMIT_BYTES = 1 << 16
"""Of a change of settings, which are a handful."""


def trace_rows(dataplane: DataPlane, json_depth: int) -> list[EndpointRow]:
    """The rows of both extensions."""
    rest = _TraceEndpoints(dataplane, json_depth)
    return [
        EndpointRow("/v2/trace/setting", rest.trace, "GET"),
        EndpointRow("/v2/trace/setting", rest.change_trace, "POST"),
        EndpointRow("/v2/models/{model}/trace/setting", rest.trace, "GET"),
        EndpointRow("/v2/models/{model}/trace/setting", rest.change_trace, "POST"),
        EndpointRow("/v2/logging", rest.logging, "GET"),
        EndpointRow("/v2/logging", rest.change_logging, "POST"),
    ]


class _TraceEndpoints:
    def __init__(self, dataplane: DataPlane, json_depth: int) -> None:
        self._queries = ModelQueries(dataplane)
        self._json_depth = json_depth

    async def trace(self, request: Request) -> Response:
        model, _ = model_of(request)
        return json_response(as_json(self._queries.trace_settings(model)))

    async def change_trace(self, request: Request) -> Response:
        model, _ = model_of(request)
        self._queries.change_trace_settings(model, given_in(await self._document(request)))
        return await self.trace(request)

    async def logging(self, request: Request) -> Response:
        return json_response(log_settings.read())

    async def change_logging(self, request: Request) -> Response:
        log_settings.change(await self._document(request))
        return await self.logging(request)

    async def _document(self, request: Request) -> dict[str, Any]:
        body = await read_body(request, _BODY_LIMIT_BYTES)
        return load_document(body, self._json_depth) if body.strip() else {}


def as_json(settings: Mapping[str, list[str]]) -> dict[str, Any]:
    """Strings, except for the level, which is a list of them."""
    return {name: texts if name == "trace_level" else texts[0] for name, texts in settings.items()}


def given_in(body: Mapping[str, Any]) -> Given:
    """The change a body asks for; a whole number is taken for its text. Raises InvalidRequest."""
    return {name: _texts(name, value) for name, value in body.items()}


def _texts(name: str, value: Any) -> list[str] | None:
    if value is None:
        return None
    if name == "trace_level" and type(value) is list and all(type(one) is str for one in value):
        return value
    if name != "trace_level" and type(value) in (str, int):
        return [str(value)]
    expected = "an array of strings" if name == "trace_level" else "a string"
    raise InvalidRequest(f"Unable to parse '{name}', got: {value!r:.100}. Expecting {expected}")
