"""What the console is given by the composition: calls of the control API, sessions, the clock.

Refused   the control API said no: status, code, message, and the field it is about
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from starlette.requests import Request

from control.access.scopes import Principal
from control.clock import utc_now


class ControlApiError(Exception):
    """A request that the control side turned down, in its words."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        field: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.field = field
        self.headers = dict(headers or {})

    def as_json(self) -> dict[str, Any]:
        return {"error": {"code": self.code, "message": self.message, "field": self.field}}


@dataclass(frozen=True, slots=True)
class ControlApiRequest:
    """A call of the control API: `path` as the API's table has it, e.g. "/models/{model}".

    `expected`: the revision a change is made against, 0 for "not there yet", None for any.
    """

    verb: str
    path: str
    names: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    expected: int | None = None


@dataclass(frozen=True, slots=True)
class ControlApiResponse:
    """What the control API answered; `document` is as its JSON would be."""

    document: Any
    status: int = 200
    next: str | None = None


@dataclass(frozen=True, slots=True)
class SessionCookie:
    """A session that was just opened: the cookie's text, and for how long the browser keeps it."""

    cookie: str
    seconds: int


class ControlApi(Protocol):
    """The control side as the console sees it. Every method may raise Refused."""

    async def identify(self, request: Request) -> Principal:
        """Who asks: a session's cookie, or for reading any credentials the API takes."""

    async def ask(
        self, request: Request, principal: Principal, asked: ControlApiRequest
    ) -> ControlApiResponse:
        """One call of the API as `principal`."""

    async def open(self, request: Request, name: str, password: str) -> SessionCookie:
        """Log in."""

    async def close(self, request: Request) -> None:
        """Log out; nothing when there is no session."""

    async def accept(self, request: Request, code: str, name: str, password: str) -> SessionCookie:
        """Create the account a one-time link is for, and log in."""

    def check(self, request: Request) -> None:
        """Whether the request is meant for us and made by one of our pages: Host, Origin."""


@dataclass(frozen=True, slots=True)
class GatewayResponse:
    """What the data plane answered; `headers` by name in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    took_s: float


class GatewayClient(Protocol):
    """The data plane's REST listener. `url`: where clients on this machine find it; `wants_token`:
    it answers nobody without one; `problem`: why it cannot be asked from here, "" if it can."""

    url: str
    wants_token: bool
    problem: str

    async def ask(
        self, verb: str, path: str, body: bytes, headers: Mapping[str, str]
    ) -> GatewayResponse:
        """One request, with a deadline. Raises ControlApiError when there is no answer."""

    async def stream(
        self, path: str, body: bytes, headers: Mapping[str, str]
    ) -> tuple[int, AsyncIterator[bytes]]:
        """POST, and the answer's bytes as they come; whoever leaves off reading closes it.
        Raises ControlApiError when there is no answer."""


@dataclass(frozen=True, slots=True)
class ConsoleServices:
    """`newest` is the newest event's id; `moved(id, seconds)` waits for a later one and says
    whether it came, and `seen` is the newest that was heard of while somebody waited.
    `rest(seconds)` is a pause, with nothing looked for. Both end early when `closed`: the server
    is stopping. `gateway`: where models are tried, None for
    nowhere. `snapshots` is the folder of the store's
    snapshots. `secure`: browsers reach us over https. `cookie` is the session cookie's name.
    `problem`: why nothing can be changed just now, "" while all is well; each page says it."""

    control: ControlApi
    newest: Callable[[], Awaitable[int]]
    moved: Callable[[int, float], Awaitable[bool]]
    seen: Callable[[], int]
    rest: Callable[[float], Awaitable[None]]
    closed: Callable[[], bool]
    snapshots: Path
    cookie: str
    secure: bool = False
    now: Callable[[], datetime] = utc_now
    heartbeat_s: float = 15.0
    gateway: GatewayClient | None = None
    problem: Callable[[], str] = lambda: ""
