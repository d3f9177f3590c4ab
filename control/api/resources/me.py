"""Who one is, and the account made from a one-time link."""

from typing import Annotated

from msgspec import Meta

from control.access.invitations import accept, first_link_code
from control.access.rate_limits import whole_seconds
from control.access.scopes import Action
from control.access.views import InvitationView, MeView, UserView
from control.api.body_fields import ApiBody, Text, meaning
from control.api.call import OPEN, Access, AuthorizedCall, EndpointResult, Operation
from control.errors import Conflict, TooMany
from control.sql.database import Actor

WELCOME = "/welcome"
"""The console's page that takes the code of a one-time link from behind the #."""

Secret = Annotated[
    str, Meta(max_length=1024, extra_json_schema={"format": "password", "writeOnly": True})
]


class Acceptance(ApiBody, frozen=True):
    code: Annotated[Text, meaning("What stands behind the # of the link.", examples=["vJ3…"])]
    name: Annotated[Text, meaning("The new user's name.", examples=["ada"])]
    password: Annotated[Secret, meaning("12 characters or more.")]


def show_me(call: AuthorizedCall) -> EndpointResult:
    who = call.principal
    scopes = None if who.scopes is None else [str(scope) for scope in who.scopes]
    return EndpointResult(MeView(who.id, who.role.value, scopes))


def accept_invitation(call: AuthorizedCall) -> EndpointResult:
    """Guesses at codes are slowed down like guesses at passwords."""
    given = call.given(Acceptance)
    actor = Actor(f"user:{given.name}"[:255], call.actor.via, call.actor.address)
    with call.services.database.change(actor) as tx:
        view = accept(tx, given.code, given.name, given.password)
    return EndpointResult(view, 201, view.revision, f"/api/v1/users/{view.name}")


def invite(call: AuthorizedCall) -> EndpointResult:
    """In place of any link before it; what stands behind the # never reaches a server's log."""
    with call.services.database.change(call.actor) as tx:
        code = first_link_code(tx)
    if code is None:
        raise Conflict("there is an admin already; admins create users with POST /users")
    url = f"{call.services.url().rstrip('/')}{WELCOME}#{code}"
    return EndpointResult(InvitationView(url), 201)


def slow_down(call: AuthorizedCall) -> None:
    """One try a second from an address, ten at once. Raises TooMany."""
    services = call.services
    wait_s = services.rates.take(f"accept:{call.actor.address}", 1.0, 10, services.monotonic())
    if wait_s:
        raise TooMany(
            f"too many links are tried from this address; try again in {whole_seconds(wait_s)}",
            wait_s,
        )


OPERATIONS = (
    Operation(
        verb="GET",
        path="/me",
        access=Access(None),
        tag="Access",
        summary="The caller: principal, role and scopes",
        run=show_me,
        gives=MeView,
    ),
    Operation(
        verb="POST",
        path="/invitations",
        access=Access(Action.ADMIN),
        tag="Access",
        summary="Create a new one-time link for the first admin, while there is none",
        run=invite,
        gives=InvitationView,
        status=201,
    ),
    Operation(
        verb="POST",
        path="/invitations/accept",
        access=OPEN,
        tag="Access",
        summary="Create the account a one-time link is for",
        before=slow_down,
        run=accept_invitation,
        takes=Acceptance,
        gives=UserView,
        status=201,
    ),
)
