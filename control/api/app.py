"""The admin port as one ASGI application: git and LFS first, then the control API and the pages.

Each request of the API goes through the same few steps: it is for us (Host, Origin), its principal
is identified and may make it, its path, query and body are as its row says; then the row answers.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import orjson
from anyio import to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from control.access.scopes import Principal
from control.api.body_fields import LARGEST, MAX_TEXT, check_texts, read_fields
from control.api.call import Access, AuthorizedCall, EndpointResult, Operation, Param, require
from control.api.etags import expected_revision
from control.api.openapi import document
from control.api.operations import OPERATIONS
from control.api.responses import response
from control.authentication.hosts import check_host, check_origin
from control.authentication.identify import (
    ANYBODY,
    AuthenticatedPrincipal,
    address_of,
    identify,
    is_local,
)
from control.clock import new_id
from control.deployments.pushes import get_push
from control.errors import PROBLEM_HEADER
from control.http_errors import (
    MalformedRequest,
    RequestBodyTooLarge,
    UnsupportedMediaType,
    error_response,
    trouble_of,
)
from control.services import ControlServices
from control.sql.database import Actor

PREFIX = "/api/v1"
OPENAPI = f"{PREFIX}/openapi.json"
GIT = "/git/"
MAX_BODY_BYTES = 2**20
_WHOLE = re.compile(r"-?\d{1,19}")
_BOOLS = {"true": True, "false": False}

Endpoint = Callable[[Request], Awaitable[Response]]


def admin_app(
    services: ControlServices, pages: Sequence[BaseRoute] = (), git: ASGIApp | None = None
) -> ASGIApp:
    """`git` gets every path below /git/; the rest goes to the API under /api/v1, `/healthz` and
    `/readyz`, then to the `pages`.

    git streams both ways at once, which Starlette's requests do not; so it stands in front.
    """
    routes = [*admin_routes(services), *pages]
    inner = Starlette(routes=routes, exception_handlers={HTTPException: _elsewhere})

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if git is not None and scope["type"] == "http" and scope["path"].startswith(GIT):
            await git(scope, receive, send)
        else:
            await inner(scope, receive, send)

    return app


def admin_routes(services: ControlServices) -> list[BaseRoute]:
    """The routes of the API."""
    described = orjson.dumps(document(services.facts.version, services.facts.public_url))

    async def openapi(request: Request) -> Response:
        return Response(described, media_type="application/json")

    async def alive(request: Request) -> Response:
        return Response("ok\n", media_type="text/plain")

    async def ready(request: Request) -> Response:
        await services.commits.answers()
        return Response("ok\n", media_type="text/plain")

    open_ones = {"/healthz": alive, "/readyz": ready, OPENAPI: openapi}
    return [
        *(
            Route(path, _answered(services, each), methods=["GET"])
            for path, each in open_ones.items()
        ),
        *(_route(services, operation) for operation in OPERATIONS),
    ]


def _route(services: ControlServices, operation: Operation) -> Route:
    async def endpoint(request: Request) -> Response:
        return await _serve(services, operation, request)

    path = PREFIX + operation.path
    return Route(path, _answered(services, endpoint), methods=[operation.verb])


def _answered(services: ControlServices, endpoint: Endpoint) -> Endpoint:
    """`endpoint` for requests that are meant for us, its errors in the envelope."""

    async def answered(request: Request) -> Response:
        request_id = new_id(services.now())
        request.scope["request_id"] = request_id
        try:
            if not is_local(request):
                check_host(request.headers.get("host", ""), services.facts.hosts)
            check_origin(request.method, request.headers, services.facts.public_url)
            found = await endpoint(request)
            if problem := services.database.problem:
                found.headers[PROBLEM_HEADER] = quote(problem)
            return found
        except Exception as error:  # noqa: BLE001 - trouble_of() logs what is our fault
            return error_response(trouble_of(error, request_id), request_id)

    return answered


async def _serve(services: ControlServices, operation: Operation, request: Request) -> Response:
    caller = (
        await identify(services, request)
        if operation.access
        else AuthenticatedPrincipal(ANYBODY, "api")
    )
    actor = Actor(caller.principal.id, caller.via, address_of(request))
    path, pairs = request.path_params, request.query_params.multi_items()
    call = await let_in(services, operation, caller.principal, actor, path, pairs)
    call = replace(call, expected=expected_revision(request.method, request.headers))
    if operation.before is not None:
        operation.before(call)
    call = replace(call, body=await read_body(operation, request))
    if operation.stream is None:
        return response(await perform(operation, call), request, request.scope["request_id"])

    async def recheck() -> None:
        caller = await identify(services, request, again=True)
        await _check_access(services, operation.access, caller.principal, call.path, call.query)

    return await operation.stream(call, request, recheck)


async def let_in(
    services: ControlServices,
    operation: Operation,
    principal: Principal,
    actor: Actor,
    path: Mapping[str, str],
    pairs: Iterable[tuple[str, str]],
) -> AuthorizedCall:
    """The call without its body; `pairs` are the query's. Raises whatever keeps the principal from
    making it."""
    check_path(path)
    query = read_query(operation, list(pairs))
    await _check_access(services, operation.access, principal, path, query)
    return AuthorizedCall(services, principal, actor, path, query)


async def perform(operation: Operation, call: AuthorizedCall) -> EndpointResult:
    """What an operation without a stream answers: on the loop, or from a thread."""
    if operation.act is not None:
        return await operation.act(call)
    assert operation.run is not None
    return await to_thread.run_sync(operation.run, call, limiter=call.services.threads)


async def _check_access(
    services: ControlServices,
    access: Access | None,
    principal: Principal,
    path: Mapping[str, str],
    query: Mapping[str, Any],
) -> None:
    """Raises NotAllowed; NotFound when what it is about decides, and there is no such thing."""
    if access is None or access.action is None:
        return
    about = access.about
    if about == "push":
        name = await to_thread.run_sync(
            _repository_of_push, services, path["push"], limiter=services.threads
        )
    elif about:
        name = path.get(about) or query.get(about) or ""
    else:
        name = ""
    require(principal, access.action, name)


def _repository_of_push(services: ControlServices, push_id: str) -> str:
    with services.database.reading() as session:
        return get_push(session, push_id).repository


def check_path(path: Mapping[str, str]) -> None:
    """Raises MalformedRequest for a name no thing can have."""
    for name, text in path.items():
        if len(text) > MAX_TEXT:
            raise MalformedRequest(f"{name} has {len(text)} characters; at most {MAX_TEXT}", name)
        check_texts(text, name)


def read_query(operation: Operation, pairs: Sequence[tuple[str, str]]) -> Mapping[str, Any]:
    """The parameters by name, those not given left out. Raises MalformedRequest."""
    params = {one.name: one for one in operation.params}
    found: dict[str, Any] = {}
    for name, text in pairs:
        if name not in params:
            there = ", ".join(params) or "none"
            raise MalformedRequest(f"there is no parameter '{name[:100]}'; there are {there}", name)
        if name in found:
            raise MalformedRequest(f"the parameter '{name}' is given twice", name)
        found[name] = _param(params[name], text)
    return found


async def read_body(operation: Operation, request: Request) -> Any:
    """The body as the operation's Struct, None where it takes none.

    Raises MalformedRequest, RequestBodyTooLarge, UnsupportedMediaType.
    """
    raw = await _bytes(request)
    if operation.takes is None:
        if raw:
            raise MalformedRequest("there is a body, and this takes none")
        return None
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise UnsupportedMediaType(
            f"the body is '{kind[:80]}'; send JSON with Content-Type: application/json",
            "Content-Type",
        )
    return read_fields(operation.takes, _document(raw))


async def _bytes(request: Request) -> bytes:
    chunks: list[bytes] = []
    size = 0
    try:
        async for chunk in request.stream():
            size += len(chunk)
            if size > MAX_BODY_BYTES:
                raise RequestBodyTooLarge(
                    f"the body is larger than the maximum of {MAX_BODY_BYTES} bytes"
                )
            chunks.append(chunk)
    except ClientDisconnect as error:
        raise MalformedRequest("the body ended early") from error
    return b"".join(chunks)


def _document(raw: bytes) -> Any:
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise MalformedRequest(
            f"the body is not JSON: line {error.lineno}, column {error.colno}: {error.msg}"
        ) from None


def _param(param: Param, text: str) -> Any:
    if len(text) > MAX_TEXT:
        raise MalformedRequest(
            f"{param.name} has {len(text)} characters; at most {MAX_TEXT}", param.name
        )
    check_texts(text, param.name)
    if param.kind is int:
        return _whole(param, text)
    if param.kind is bool:
        if text not in _BOOLS:
            raise MalformedRequest(f"{param.name} is '{text}'; give true or false", param.name)
        return _BOOLS[text]
    if param.kind is datetime:
        return _moment(param, text)
    return text


def _whole(param: Param, text: str) -> int:
    least = param.schema.get("minimum", 0)
    most = param.schema.get("maximum", LARGEST)
    if not (text.isascii() and _WHOLE.fullmatch(text)) or not least <= int(text) <= most:
        raise MalformedRequest(
            f"{param.name} is '{text}'; give a whole number from {least} to {most}", param.name
        )
    return int(text)


def _moment(param: Param, text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
        in_utc = moment.tzinfo is not None and moment.astimezone(UTC)
    except (ValueError, OverflowError):  # what is before the year 1 in UTC is no moment
        in_utc = False
    if not in_utc:
        raise MalformedRequest(
            f"{param.name} is '{text}'; give a moment with its zone, as 2026-11-21T04:24:00Z",
            param.name,
        )
    return in_utc


async def _elsewhere(request: Request, error: Exception) -> Response:
    """A path or verb that is nobody's, in the envelope."""
    request_id = request.scope.get("request_id", "")
    return error_response(trouble_of(error, request_id), request_id)
