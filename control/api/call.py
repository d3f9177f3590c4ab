"""One row of the API's table, and one request that was let through to it."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from control.access.scopes import Action, Principal, allows, why_not
from control.errors import NotAllowed
from control.paging import MOST, USUAL
from control.services import ControlServices
from control.sql.database import Actor, expect_revision

T = TypeVar("T")
Json = dict[str, Any]

_USER = "user:"


@dataclass(frozen=True, slots=True)
class Access:
    """What it takes: `action` on the thing that `about` finds in the path or the query.

    No action: anybody known, and the endpoint looks closer (own things). "push" is the
    repository the push of the path went to.
    """

    action: Action | None
    about: Literal["", "model", "repository", "push"] = ""


OPEN = None
"""In place of an Access: no credentials are asked for."""


@dataclass(frozen=True, slots=True)
class Param:
    """A query parameter. `kind` is str, int, bool or datetime (RFC 3339)."""

    name: str
    meaning: str
    kind: type = str
    schema: Json = field(default_factory=dict)


PAGING = (
    Param("limit", f"Items at most; {USUAL} if not given.", int,
          {"minimum": 1, "maximum": MOST}),
    Param("cursor", "`next` of the page before."),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class EndpointResult:
    """What an endpoint found: one thing, with the revision its ETag names if it has one, or a
    page of `items` and the cursor of the next one."""

    document: msgspec.Struct | None = None
    status: int = 200
    revision: int | None = None
    location: str = ""
    next: str | None = None


NOTHING = EndpointResult(status=204)


@dataclass(frozen=True, slots=True)
class AuthorizedCall:
    """A request whose principal may make it. `expected`: the revision of If-Match, if any."""

    services: ControlServices
    principal: Principal
    actor: Actor
    path: Mapping[str, str]
    query: Mapping[str, Any]
    body: Any = None
    expected: int | None = None

    @property
    def now(self) -> datetime:
        return self.services.now()

    def given(self, kind: type[T]) -> T:
        assert isinstance(self.body, kind)
        return self.body

    def paging(self) -> dict[str, Any]:
        """limit and cursor, as the lists of `control` take them."""
        return {"limit": self.query.get("limit", USUAL), "cursor": self.query.get("cursor")}

    def check_revision(self, found: int, what: str) -> None:
        """Raises Stale."""
        expect_revision(found, self.expected, what)

    def require(self, action: Action, name: str = "", ref: str = "") -> None:
        require(self.principal, action, name, ref)


Recheck = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A verb on a path below /api/v1, what it takes to be let in, and what answers it.

    `before` is called on the loop, before the body is read. `run` blocks and is called on a
    thread, `act` runs on the loop, `stream` answers by itself: what it is given raises once the
    principal may not make the call any more. `gives` is the view's dataclass,
    `takes` the body's. `list_of` rows take limit and cursor. `also`: the other media type that may
    be asked for.
    """

    verb: str
    path: str
    access: Access | None
    tag: str
    summary: str
    run: Callable[[AuthorizedCall], EndpointResult] | None = None
    before: Callable[[AuthorizedCall], None] | None = None
    act: Callable[[AuthorizedCall], Awaitable[EndpointResult]] | None = None
    stream: Callable[[AuthorizedCall, Request, Recheck], Awaitable[Response]] | None = None
    takes: type | None = None
    gives: type | None = None
    list_of: type | None = None
    query: tuple[Param, ...] = ()
    status: int = 200
    media_type: str = "application/json"
    also: str = ""
    if_match: bool = False

    @property
    def params(self) -> tuple[Param, ...]:
        """Every query parameter."""
        return self.query + (PAGING if self.list_of else ())


def person_of(principal: Principal) -> str:
    """The name of the user who logged in; "" for a token, whosever it is, and for local ones."""
    is_person = principal.scopes is None and principal.id.startswith(_USER)
    return principal.id.removeprefix(_USER) if is_person else ""


def require(principal: Principal, action: Action, name: str = "", ref: str = "") -> None:
    """Raises NotAllowed saying what would be needed."""
    if not allows(principal, action, name, ref):
        raise NotAllowed(why_not(principal, action, name, ref))
