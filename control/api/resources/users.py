"""People: listed, made, changed. One's own password may be changed by oneself."""

from typing import Annotated
from urllib.parse import quote

from anyio import to_thread

from control.access.passwords import hash_of_new
from control.access.scopes import Action, Role, allows
from control.access.users import change_user, create_user, get_user, list_users
from control.access.views import UserView
from control.api.body_fields import ApiBody, Text, meaning
from control.api.call import Access, AuthorizedCall, EndpointResult, Operation, person_of
from control.api.resources.me import Secret
from control.api.responses import page_of
from control.authentication.credentials import Password
from control.authentication.identify import by_password
from control.errors import NotAllowed
from control.http_errors import CredentialsRequired

_ADMIN = Access(Action.ADMIN)


class NewUser(ApiBody, frozen=True):
    name: Annotated[
        Text, meaning("a-z, then a-z 0-9 . _ -; 63 characters at most.", examples=["ada"])
    ]
    role: Annotated[Role, meaning("What the user may do.", examples=["operator"])]
    password: Annotated[
        Secret | None,
        meaning("12 characters or more; without one the user only has tokens."),
    ] = None


class UserChange(ApiBody, frozen=True):
    role: Annotated[Role | None, meaning("Another role.")] = None
    password: Annotated[
        Secret | None, meaning("Another password; logs the user out everywhere.")
    ] = None
    current_password: Annotated[
        Secret | None, meaning("The password so far, when it is one's own that changes.")
    ] = None
    disabled: Annotated[bool | None, meaning("Ends sessions and revokes tokens at once.")] = None


def list_(call: AuthorizedCall) -> EndpointResult:
    with call.services.database.reading() as session:
        views = list_users(session)
    return page_of(call, views, lambda view: view.name)


def create(call: AuthorizedCall) -> EndpointResult:
    given = call.given(NewUser)
    hashed = None if given.password is None else hash_of_new(given.name, given.password)
    with call.services.database.change(call.actor) as tx:
        view = create_user(tx, given.name, given.role, hashed)
    return _one(view, 201, f"/api/v1/users/{quote(view.name)}")


def show(call: AuthorizedCall) -> EndpointResult:
    with call.services.database.reading() as session:
        return _one(get_user(session, call.path["user"]))


async def change(call: AuthorizedCall) -> EndpointResult:
    given = call.given(UserChange)
    if not allows(call.principal, Action.ADMIN):
        await _check_own(call, given)
    return await to_thread.run_sync(_change, call, given, limiter=call.services.threads)


def _change(call: AuthorizedCall, given: UserChange) -> EndpointResult:
    name = call.path["user"]
    hashed = None if given.password is None else hash_of_new(name, given.password)
    with call.services.database.change(call.actor) as tx:
        view = change_user(
            tx,
            name,
            role=given.role,
            password=hashed,
            disabled=given.disabled,
            expected=call.expected,
        )
    return _one(view)


def self_or_admin(call: AuthorizedCall) -> None:
    """Raises NotAllowed."""
    if person_of(call.principal) != call.path["user"]:
        call.require(Action.ADMIN)


async def _check_own(call: AuthorizedCall, given: UserChange) -> None:
    """One's own password, by who knows the one so far; everything else takes an admin. Guesses
    are slowed down as they are at the login: a browser left open must not tell the password."""
    if given.role is not None or given.disabled is not None:
        call.require(Action.ADMIN)
    so_far = Password(call.path["user"], given.current_password or "")
    try:
        await by_password(call.services, so_far, call.actor.address)
    except CredentialsRequired:
        raise NotAllowed("current_password is not your password so far") from None


def _one(view: UserView, status: int = 200, location: str = "") -> EndpointResult:
    return EndpointResult(view, status, view.revision, location)


OPERATIONS = (
    Operation(
        verb="GET",
        path="/users",
        access=_ADMIN,
        tag="Access",
        summary="All users, by name",
        run=list_,
        list_of=UserView,
    ),
    Operation(
        verb="POST",
        path="/users",
        access=_ADMIN,
        tag="Access",
        summary="Create a user",
        run=create,
        takes=NewUser,
        gives=UserView,
        status=201,
    ),
    Operation(
        verb="GET",
        path="/users/{user}",
        access=Access(None),
        tag="Access",
        summary="A user; one's own, or anybody's for an admin",
        before=self_or_admin,
        run=show,
        gives=UserView,
    ),
    Operation(
        verb="PATCH",
        path="/users/{user}",
        access=Access(None),
        tag="Access",
        summary="Change role or password, disable or enable; one's own password by oneself",
        before=self_or_admin,
        act=change,
        takes=UserChange,
        gives=UserView,
        if_match=True,
    ),
)
