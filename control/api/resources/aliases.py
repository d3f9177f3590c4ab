"""Aliases of versions, moved by compare-and-set."""

from typing import Annotated
from urllib.parse import quote

from control.access.scopes import Action
from control.api.body_fields import ApiBody, Positive, meaning
from control.api.call import NOTHING, Access, AuthorizedCall, EndpointResult, Operation
from control.api.responses import from_page
from control.deployments.aliases import delete_alias, get_alias, list_aliases, set_alias
from control.views import AliasView

_READ = Access(Action.READ, "model")
_CHANGE = Access(Action.OPERATE, "model")
_PATH = "/models/{model}/aliases/{alias}"


class AliasTarget(ApiBody, frozen=True):
    version: Annotated[Positive, meaning("The version it is to stand for.", examples=[2])]


def list_all(call: AuthorizedCall) -> EndpointResult:
    with call.services.database.reading() as session:
        return from_page(list_aliases(session, **call.paging()))


def list_(call: AuthorizedCall) -> EndpointResult:
    with call.services.database.reading() as session:
        return from_page(list_aliases(session, call.path["model"], **call.paging()))


def show(call: AuthorizedCall) -> EndpointResult:
    with call.services.database.reading() as session:
        return _one(get_alias(session, call.path["model"], call.path["alias"]))


def set_(call: AuthorizedCall) -> EndpointResult:
    version = call.given(AliasTarget).version
    model, name = call.path["model"], call.path["alias"]
    with call.services.database.change(call.actor) as tx:
        return _one(set_alias(tx, model, name, version, call.expected))


def delete(call: AuthorizedCall) -> EndpointResult:
    with call.services.database.change(call.actor) as tx:
        delete_alias(tx, call.path["model"], call.path["alias"], call.expected)
    return NOTHING


def _one(view: AliasView) -> EndpointResult:
    location = f"/api/v1/models/{quote(view.model)}/aliases/{view.name}"
    return EndpointResult(view, 200, view.revision, location)


OPERATIONS = (
    Operation(
        verb="GET",
        path="/aliases",
        access=Access(Action.READ),
        tag="Models",
        summary="The aliases of all models",
        run=list_all,
        list_of=AliasView,
    ),
    Operation(
        verb="GET",
        path="/models/{model}/aliases",
        access=_READ,
        tag="Models",
        summary="A model's aliases",
        run=list_,
        list_of=AliasView,
    ),
    Operation(
        verb="GET",
        path=_PATH,
        access=_READ,
        tag="Models",
        summary="An alias, and the version it stands for",
        run=show,
        gives=AliasView,
    ),
    Operation(
        verb="PUT",
        path=_PATH,
        access=_CHANGE,
        tag="Models",
        summary="Create or move an alias; If-None-Match: * only creates one",
        run=set_,
        takes=AliasTarget,
        gives=AliasView,
        if_match=True,
    ),
    Operation(
        verb="DELETE",
        path=_PATH,
        access=_CHANGE,
        tag="Models",
        summary="Delete an alias",
        run=delete,
        status=204,
        if_match=True,
    ),
)
