"""Routes: public names, the arms behind them, the kill switch, and what a unit would get."""

from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import quote

import msgspec

from control.access.scopes import Action
from control.api.body_fields import ApiBody, Text, meaning
from control.api.call import NOTHING, Access, AuthorizedCall, EndpointResult, Operation, Param
from control.api.responses import from_page
from control.deployments.aliases import list_aliases
from control.errors import Invalid
from control.rollouts.route_changes import delete_route, kill, set_route, set_weights
from control.routes.service import RouteView, desired_route, get_route, list_routes, unkill
from control.routes.spec import buckets_of, check_unit, parse_spec
from control.views import Explanation, RouteDocument

_READ, _CHANGE = Access(Action.READ), Access(Action.OPERATE)
_PATH = "/routes/{route}"
_MOST_HEADERS = 100
_FORCED = Param(
    "force",
    "Also while a rollout or an experiment needs the route as it is: the rollout is aborted, the "
    "experiment stopped.",
    bool,
)


class RouteTerms(ApiBody, frozen=True):
    arms: Annotated[
        list[dict[str, Any]],
        meaning(
            "Who may answer; the first one is the stable arm. Each has a `name`, a `model`, a "
            "`version` or an `alias`, and a `weight` in percent; the weights add up to 100.",
            examples=[[{"name": "stable", "model": "digits", "version": 1, "weight": 100}]],
        ),
    ]
    unit: Annotated[
        Text,
        meaning(
            "What stays with its arm: 'header:NAME', 'parameter:NAME', 'key' (whose token it is), "
            "'sequence', or '' to draw anew for each request.",
            examples=["header:x-user"],
        ),
    ] = ""
    salt: Annotated[
        Text, meaning("Decides which units an arm gets; created, or kept, where none is given.")
    ] = ""
    matches: Annotated[
        list[dict[str, Any]],
        meaning(
            "Rules that come before the weights: requests whose `header` is `value`, or begins "
            "with it where `prefix` is true, go to `arm`."
        ),
    ] = msgspec.field(default_factory=list)
    mirrors: Annotated[
        list[dict[str, Any]],
        meaning(
            "`arm` gets a mirror of so many `percent` of the requests; its responses are discarded."
        ),
    ] = msgspec.field(default_factory=list)


class RouteWeights(ApiBody, frozen=True):
    weights: Annotated[
        dict[str, Any],
        meaning(
            "Arm → percent of the requests; the stable arm gets what is left.",
            examples=[{"candidate": 25}],
        ),
    ]


class KillTarget(ApiBody, frozen=True):
    arm: Annotated[Text, meaning("The arm that gets everything; the stable one if not given.")] = ""


def list_(call: AuthorizedCall) -> EndpointResult:
    with call.services.database.reading() as session:
        return from_page(list_routes(session, **call.paging()).map(RouteView.document))


def show(call: AuthorizedCall) -> EndpointResult:
    with call.services.database.reading() as session:
        return _one(get_route(session, call.path["route"]))


def set_(call: AuthorizedCall) -> EndpointResult:
    spec = parse_spec(msgspec.structs.asdict(call.given(RouteTerms)))
    with call.services.database.change(call.actor) as tx:
        name, force = call.path["route"], _force(call)
        return _one(set_route(tx, name, spec, call.expected, force=force))


def weigh(call: AuthorizedCall) -> EndpointResult:
    weights = {arm: _buckets(arm, share) for arm, share in call.given(RouteWeights).weights.items()}
    with call.services.database.change(call.actor) as tx:
        name, force = call.path["route"], _force(call)
        return _one(set_weights(tx, name, weights, call.expected, force=force))


def delete(call: AuthorizedCall) -> EndpointResult:
    with call.services.database.change(call.actor) as tx:
        delete_route(tx, call.path["route"], call.expected, force=_force(call))
    return NOTHING


def throw(call: AuthorizedCall) -> EndpointResult:
    with call.services.database.change(call.actor) as tx:
        return _one(kill(tx, call.path["route"], call.given(KillTarget).arm, call.expected))


def release(call: AuthorizedCall) -> EndpointResult:
    with call.services.database.change(call.actor) as tx:
        return _one(unkill(tx, call.path["route"], call.expected))


def explain_(call: AuthorizedCall) -> EndpointResult:
    labels = _headers(call.query.get("header", ""))
    with call.services.database.reading() as session:
        view = get_route(session, call.path["route"])
        aliases = _aliases(session, {arm.model for arm in view.spec.arms if arm.alias})
    unit = call.query.get("unit", "")
    return EndpointResult(call.services.explain(desired_route(view), aliases, unit, labels))


def _force(call: AuthorizedCall) -> bool:
    return bool(call.query.get("force"))


def _aliases(session: Any, models: set[str]) -> dict[str, dict[str, int]]:
    """Of these models, at most 500 of each."""
    return {
        model: {one.name: one.version for one in list_aliases(session, model, limit=500).items}
        for model in models
    }


def _headers(text: str) -> Mapping[str, str]:
    """Lines of "name: value". Raises Invalid."""
    found: dict[str, str] = {}
    for line in text.split("\n")[:_MOST_HEADERS] if text else []:
        name, colon, value = line.partition(":")
        if not colon:
            raise Invalid(f"'{line:.80}' is no header; give NAME: VALUE", "header")
        check_unit(f"header:{name.strip()}")
        found.setdefault(name.strip().lower(), value.strip())
    return found


def _buckets(arm: str, share: Any) -> int:
    if isinstance(share, bool) or not isinstance(share, int | float):
        raise Invalid(f"the weight of '{arm:.80}' is no number of percent", "weights")
    return buckets_of(share, f"the weight of '{arm:.80}'", "weights")


def _one(view: RouteView) -> EndpointResult:
    return EndpointResult(view.document(), 200, view.revision, f"/api/v1/routes/{quote(view.name)}")


OPERATIONS = (
    Operation(
        verb="GET",
        path="/routes",
        access=_READ,
        tag="Routes",
        summary="All routes",
        run=list_,
        list_of=RouteDocument,
    ),
    Operation(
        verb="GET",
        path=_PATH,
        access=_READ,
        tag="Routes",
        summary="A route, its arms and their weights",
        run=show,
        gives=RouteDocument,
    ),
    Operation(
        verb="PUT",
        path=_PATH,
        access=_CHANGE,
        tag="Routes",
        summary="Create a route or replace it; If-None-Match: * only creates one",
        run=set_,
        takes=RouteTerms,
        gives=RouteDocument,
        query=(_FORCED,),
        if_match=True,
    ),
    Operation(
        verb="PATCH",
        path=_PATH,
        access=_CHANGE,
        tag="Routes",
        summary="Change the weights of a route's arms",
        run=weigh,
        takes=RouteWeights,
        gives=RouteDocument,
        query=(_FORCED,),
        if_match=True,
    ),
    Operation(
        verb="DELETE",
        path=_PATH,
        access=_CHANGE,
        tag="Routes",
        summary="Delete a route",
        run=delete,
        status=204,
        query=(_FORCED,),
        if_match=True,
    ),
    Operation(
        verb="POST",
        path=_PATH + "/kill",
        access=_CHANGE,
        tag="Routes",
        summary="Turn on the kill switch: send everything to one arm; ends a rollout under way",
        run=throw,
        takes=KillTarget,
        gives=RouteDocument,
        if_match=True,
    ),
    Operation(
        verb="DELETE",
        path=_PATH + "/kill",
        access=_CHANGE,
        tag="Routes",
        summary="Release the kill switch: weights and rules apply again",
        run=release,
        gives=RouteDocument,
        if_match=True,
    ),
    Operation(
        verb="GET",
        path=_PATH + "/explain",
        access=_READ,
        tag="Routes",
        summary="Which arm a unit gets, and why",
        run=explain_,
        gives=Explanation,
        query=(
            Param("unit", "The unit, e.g. a user's id."),
            Param("header", "A header as NAME: VALUE; several on lines of their own."),
        ),
    ),
)
