"""What REST's endpoints have in common: a row of the table of paths, bodies, JSON answers."""

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import msgspec
import orjson
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from schedulers.errors import Cancelled
from server.errors import RequestTooLarge
from server.rest.errors import error_body, headers_of, visible

Endpoint = Callable[[Request], Awaitable[Response]]


class BodyLimits(NamedTuple):
    """What one request may bring: bytes of body, levels of JSON nesting."""

    body_bytes: int
    json_depth: int


class EndpointRow(NamedTuple):
    """One path and verb, and what answers it. Paths are Starlette's: `/v2/models/{model}`."""

    path: str
    endpoint: Endpoint
    verb: str


def route(row: EndpointRow) -> Route:
    """A route whose errors are answered as `server.rest.errors` says."""

    async def answered(request: Request) -> Response:
        try:
            return await row.endpoint(request)
        except Exception as error:  # noqa: BLE001 - the boundary: visible() logs what is our fault
            status, text = visible(error, f"{request.method} {request.url.path}")
            headers = {name.decode(): value.decode() for name, value in headers_of(error)}
            return Response(error_body(text), status, headers, "application/json")

    return Route(row.path, answered, methods=[row.verb])


def json_response(document: Any) -> Response:
    """Written by orjson, which takes a third less than msgspec over lists of floats. Structs in it
    have no field that may be unset."""
    body = orjson.dumps(document, default=msgspec.structs.asdict)
    return Response(body, media_type="application/json")


def struct_response(document: msgspec.Struct) -> Response:
    return Response(msgspec.json.encode(document), media_type="application/json")


async def read_body(request: Request, limit_bytes: int, remedy: str = "") -> bytes:
    """The whole body. Raises RequestTooLarge, naming the limit and the `remedy`; Cancelled when the
    client has gone before its end."""
    chunks: list[bytes] = []
    size = 0
    try:
        async for chunk in request.stream():
            size += len(chunk)
            if size > limit_bytes:
                raise RequestTooLarge(
                    f"the body is larger than the maximum of {limit_bytes} bytes{remedy}"
                )
            chunks.append(chunk)
    except ClientDisconnect as error:
        raise Cancelled("the client has disconnected") from error
    return b"".join(chunks)


def model_of(request: Request) -> tuple[str, str]:
    """Name and version of the path, each "" where the path has none."""
    params = request.path_params
    return params.get("model", ""), str(params.get("version", ""))
