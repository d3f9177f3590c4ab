"""The console's way to the control side: calls of the API's own table, made inside this process."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import orjson
from anyio import to_thread
from starlette.requests import Request
from starlette.routing import BaseRoute

from admin_ui.console import console_routes
from admin_ui.services import (
    ConsoleServices,
    ControlApiError,
    ControlApiRequest,
    ControlApiResponse,
    GatewayClient,
    SessionCookie,
)
from control.access.invitations import accept
from control.access.scopes import Principal
from control.access.sessions import LONGEST, close_session, open_session
from control.api.app import let_in, perform
from control.api.body_fields import read_fields
from control.api.call import AuthorizedCall, EndpointResult, Operation
from control.api.operations import OPERATIONS
from control.api.resources import events
from control.api.resources.me import slow_down
from control.authentication.credentials import COOKIE, Cookie, Password, read_credentials
from control.authentication.hosts import check_host, check_origin
from control.authentication.identify import (
    ANYBODY,
    address_of,
    by_cookie,
    by_password,
    identify,
    is_local,
)
from control.authentication.origins import SAFE
from control.clock import new_id
from control.http_errors import CrossOriginWrite, trouble_of
from control.services import ControlServices
from control.sql.database import Actor
from control.state_paths import SNAPSHOTS
from control.views import to_json

_VIA = "console"


def console(services: ControlServices, gateway: GatewayClient | None = None) -> list[BaseRoute]:
    """The console's routes. `gateway`: where models can be tried."""
    given = ConsoleServices(
        control=InProcessControlApi(services),
        newest=services.commits.newest,
        moved=services.commits.after,
        seen=lambda: services.commits.latest,
        rest=services.commits.rest,
        closed=lambda: services.commits.closed,
        snapshots=services.facts.store / SNAPSHOTS,
        cookie=COOKIE,
        secure=services.facts.public_url.startswith("https:"),
        now=services.now,
        heartbeat_s=services.heartbeat_s,
        gateway=gateway,
        problem=lambda: services.database.problem,
    )
    return console_routes(given)


class InProcessControlApi:
    """`admin_ui.services.ControlApi` over the table of operations."""

    def __init__(self, services: ControlServices) -> None:
        self._services = services
        self._table = {(one.verb, one.path): one for one in map(_askable, OPERATIONS)}

    def check(self, request: Request) -> None:
        try:
            if not is_local(request):
                check_host(request.headers.get("host", ""), self._services.facts.hosts)
            check_origin(request.method, request.headers, self._services.facts.public_url)
        except Exception as error:
            raise self._refused(error) from error

    async def identify(self, request: Request) -> Principal:
        """A form counts with a session's cookie only: its token is what the frame looks at."""
        try:
            if request.method in SAFE:
                return (await identify(self._services, request)).principal
            found = read_credentials(request.headers, request.cookies, None)
            if not isinstance(found, Cookie):
                raise CrossOriginWrite("forms are for who has logged in; programs use /api/v1")
            return await by_cookie(self._services, found.text)
        except Exception as error:
            raise self._refused(error) from error

    async def ask(
        self, request: Request, principal: Principal, api_request: ControlApiRequest
    ) -> ControlApiResponse:
        try:
            answer = await self._answer(request, principal, api_request)
        except Exception as error:
            raise self._refused(error) from error
        return ControlApiResponse(
            orjson.loads(to_json(answer.document)), answer.status, answer.next
        )

    async def open(self, request: Request, name: str, password: str) -> SessionCookie:
        given = Password(name, password)
        try:
            await by_password(self._services, given, address_of(request))
            return await self._opened(request, name)
        except Exception as error:
            raise self._refused(error) from error

    async def close(self, request: Request) -> None:
        cookie = request.cookies.get(COOKIE, "")
        try:
            principal = await by_cookie(self._services, cookie)
            actor = Actor(principal.id, _VIA, address_of(request))
            await self._in_thread(partial(self._close, actor, cookie))
        except Exception as error:
            refused = self._refused(error)
            if refused.status != 401:
                raise refused from error

    async def accept(self, request: Request, code: str, name: str, password: str) -> SessionCookie:
        actor = Actor(f"user:{name}"[:255], _VIA, address_of(request))
        try:
            slow_down(AuthorizedCall(self._services, ANYBODY, actor, {}, {}))
            await self._in_thread(partial(self._accept, actor, code, name, password))
            return await self._opened(request, name)
        except Exception as error:
            raise self._refused(error) from error

    async def _answer(
        self, request: Request, principal: Principal, api_request: ControlApiRequest
    ) -> EndpointResult:
        services, operation = self._services, self._table[api_request.verb, api_request.path]
        actor, pairs = Actor(principal.id, _VIA, address_of(request)), api_request.query.items()
        call = await let_in(services, operation, principal, actor, api_request.names, pairs)
        call = replace(call, expected=api_request.expected)
        if operation.before is not None:
            operation.before(call)
        if operation.takes is not None:
            call = replace(call, body=read_fields(operation.takes, api_request.body))
        return await perform(operation, call)

    async def _opened(self, request: Request, name: str) -> SessionCookie:
        cookie = await self._in_thread(partial(self._open, name, address_of(request)))
        return SessionCookie(cookie, int(LONGEST.total_seconds()))

    def _open(self, name: str, address: str) -> str:
        with self._services.database.change(Actor(f"user:{name}", _VIA, address)) as tx:
            return open_session(tx, name, address)

    def _close(self, actor: Actor, cookie: str) -> None:
        with self._services.database.change(actor) as tx:
            close_session(tx, cookie)

    def _accept(self, actor: Actor, code: str, name: str, password: str) -> str:
        with self._services.database.change(actor) as tx:
            return accept(tx, code, name, password).name

    async def _in_thread(self, work: "partial[str] | partial[None]") -> str:
        return await to_thread.run_sync(work, limiter=self._services.threads) or ""

    def _refused(self, error: Exception) -> ControlApiError:
        trouble = trouble_of(error, new_id(self._services.now()))
        headers: Mapping[str, str] = trouble.headers
        return ControlApiError(
            trouble.status, trouble.code, trouble.message, trouble.field, headers
        )


def _askable(operation: Operation) -> Operation:
    """The events as pages: their stream is the API's own; the console has another."""
    if operation.path == "/events":
        return replace(operation, stream=None, run=events.list_)
    return operation
