"""API tokens: one's own for everybody who logged in, anybody's for admins.

A token makes no tokens, unless it may administer: it could make itself more than it is.
"""

from typing import Annotated

from msgspec import Meta

from control.access.scopes import Action, allows
from control.access.tokens import create_token, get_token, list_tokens, revoke_token
from control.access.views import CreatedTokenView, TokenView
from control.api.body_fields import LARGEST, ApiBody, Natural, Text, meaning
from control.api.call import (
    NOTHING,
    Access,
    AuthorizedCall,
    EndpointResult,
    Operation,
    Param,
    person_of,
)
from control.api.responses import page_of
from control.errors import Invalid, NotAllowed

_SELF = Access(None)


class NewApiToken(ApiBody, frozen=True):
    name: Annotated[str, meaning("What it is for.", max_length=100, examples=["ci"])]
    scopes: Annotated[
        list[str],
        meaning(
            "infer:MODEL, push:REPOSITORY:REF, priority:-N, read, operate or admin; MODEL and REF "
            "may hold *.",
            examples=[["push:vision:main", "infer:*"]],
        ),
    ]
    user: Annotated[Text | None, meaning("Whose it is; oneself if not given.")] = None
    expires_in_s: Annotated[
        Natural | None,
        meaning("Seconds it lasts; 90 days if not given, 0 for no expiry (admins only)."),
    ] = None
    rate_per_s: Annotated[
        Annotated[float, Meta(ge=0, le=LARGEST)] | None,
        meaning("Requests a second; not limited if not given."),
    ] = None
    burst: Annotated[Natural | None, meaning("Requests at once after a rest.")] = None


def list_(call: AuthorizedCall) -> EndpointResult:
    """All tokens for an admin who names no user, one's own otherwise."""
    user = call.query.get("user")
    if user is None and not allows(call.principal, Action.ADMIN):
        user = _own_name(call)
    if user is not None:
        _check_may(call, user)
    with call.services.database.reading() as session:
        views = list_tokens(session, user)
    return page_of(call, views, lambda view: view.id, newest_first=True)


def create(call: AuthorizedCall) -> EndpointResult:
    given = call.given(NewApiToken)
    user = given.user if given.user is not None else _own_name(call)
    _check_may(call, user)
    with call.services.database.change(call.actor) as tx:
        made = create_token(
            tx,
            user,
            given.name,
            given.scopes,
            expires_in_s=given.expires_in_s,
            rate_per_s=given.rate_per_s,
            burst=given.burst,
        )
    document = CreatedTokenView(made.view, made.text)
    return EndpointResult(document, 201, location=f"/api/v1/tokens/{made.view.id}")


def revoke(call: AuthorizedCall) -> EndpointResult:
    """Also by the token itself: whoever finds one can make it worthless."""
    token_id = call.path["token"]
    with call.services.database.reading() as session:
        view = get_token(session, token_id)
    if call.principal.token_id != view.id:
        _check_may(call, view.user)
    with call.services.database.change(call.actor) as tx:
        revoke_token(tx, token_id)
    return NOTHING


def person_or_admin(call: AuthorizedCall) -> None:
    """Raises NotAllowed."""
    if not (person_of(call.principal) or allows(call.principal, Action.ADMIN)):
        raise NotAllowed("a token neither lists nor creates tokens; log in with name and password")


def _own_name(call: AuthorizedCall) -> str:
    """The name of the user who asks. Raises Invalid for an admin that is none."""
    name = person_of(call.principal)
    if not name:
        raise Invalid(
            f"{call.principal.id} is no user who logged in; name the token's with user, or --user",
            "user",
        )
    return name


def _check_may(call: AuthorizedCall, user: str) -> None:
    if person_of(call.principal) != user:
        call.require(Action.ADMIN)


OPERATIONS = (
    Operation(
        verb="GET",
        path="/tokens",
        access=_SELF,
        tag="Access",
        summary="One's own tokens, newest first; anybody's for an admin",
        before=person_or_admin,
        run=list_,
        list_of=TokenView,
        query=(Param("user", "Whose."),),
    ),
    Operation(
        verb="POST",
        path="/tokens",
        access=_SELF,
        tag="Access",
        summary="Create a token; its text is in this response only",
        before=person_or_admin,
        run=create,
        takes=NewApiToken,
        gives=CreatedTokenView,
        status=201,
    ),
    Operation(
        verb="DELETE",
        path="/tokens/{token}",
        access=_SELF,
        tag="Access",
        summary="Revoke a token for good",
        run=revoke,
        status=204,
    ),
)
