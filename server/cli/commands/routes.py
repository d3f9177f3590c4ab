"""`modelyard route …`."""

import argparse
from typing import Any

from control.views import ArmOfRoute, Explanation, RouteDocument
from server.cli.commands.client import ApiClient, RequestRejected, ServerUnreachable, path_of
from server.cli.commands.command import CliCommand, argument, limited
from server.cli.commands.in_force import targets_of, unready
from server.cli.commands.output import (
    Columns,
    Json,
    ListOutput,
    MessageOutput,
    RecordOutput,
    Shown,
    pending_text,
)

_TERMS = ("arms", "unit", "salt", "matches", "mirrors")
_COLUMNS: Columns = {
    "route": "name",
    "arms": lambda item: [_arm_text(arm) for arm in item.arms],
    "unit": lambda item: item.unit or "-",
    "mirrors": lambda item: [f"{one.arm} {one.percent:g} %" for one in item.mirrors],
    "only": "only",
    "rollout": "rollout",
    "pending": pending_text,
}


def list_routes(given: argparse.Namespace, api: ApiClient) -> Shown:
    return ListOutput(list(api.items("/routes", RouteDocument, given.limit)), _COLUMNS)


def show_route(given: argparse.Namespace, api: ApiClient) -> Shown:
    return RecordOutput(api.get(path_of("routes", given.NAME), RouteDocument))


def set_route(given: argparse.Namespace, api: ApiClient) -> Shown:
    """What is not given stays as it is."""
    path, more = path_of("routes", given.NAME), _forced(given)
    if given.weight and not _terms(given):
        made = api.call("PATCH", path + more, RouteDocument, {"weights": dict(given.weight)})
        return _shown_route(made, api)
    before, headers = _before(path, api)
    made = api.call("PUT", path + more, RouteDocument, {**before, **_terms(given)}, headers)
    if given.weight:
        made = api.call("PATCH", path + more, RouteDocument, {"weights": dict(given.weight)})
    return _shown_route(made, api)


def kill(given: argparse.Namespace, api: ApiClient) -> Shown:
    body = {"arm": given.ARM} if given.ARM else {}
    made = api.call("POST", path_of("routes", given.NAME, "kill"), RouteDocument, body)
    sentence = f"all of {made.name} goes to {made.only} until `modelyard route unkill`"
    try:
        target = api.get(path_of("routes", given.NAME, "explain"), Explanation)
    except (
        RequestRejected,
        ServerUnreachable,
    ):  # it is in force or pending, and more may not be asked
        return MessageOutput(sentence, made)
    return MessageOutput(
        sentence + unready(api, [(target.model or "", target.version or 0)], "route"), made
    )


def unkill(given: argparse.Namespace, api: ApiClient) -> Shown:
    return _shown_route(
        api.call("DELETE", path_of("routes", given.NAME, "kill"), RouteDocument), api
    )


def delete(given: argparse.Namespace, api: ApiClient) -> Shown:
    api.delete(path_of("routes", given.NAME) + _forced(given))
    return MessageOutput(f"route {given.NAME} deleted")


def explain(given: argparse.Namespace, api: ApiClient) -> Shown:
    query = {"unit": given.unit, "header": "\n".join(given.header or ()) or None}
    found = api.get(path_of("routes", given.NAME, "explain"), Explanation, **query)
    who = f"{found.arm} ({found.model} version {found.version}): " if found.arm else ""
    return MessageOutput(f"{who}{found.reason}", found)


def arm(text: str) -> Json:
    """ "stable=digits:3=99.5" or "next=digits@challenger=0.5" → an arm."""
    name, _, rest = text.partition("=")
    whom, _, weight = rest.rpartition("=")
    model, colon, version = whom.rpartition(":")
    if colon and version.isascii() and version.isdigit():
        return {"name": name, "model": model, "version": int(version), "weight": share(weight)}
    model, at, alias = whom.rpartition("@")
    if not at:
        raise argparse.ArgumentTypeError(
            f"'{text}' is no arm; give NAME=MODEL:VERSION=PERCENT or NAME=MODEL@ALIAS=PERCENT"
        )
    return {"name": name, "model": model, "alias": alias, "weight": share(weight)}


def share(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is no number of percent") from None


def weight(text: str) -> tuple[str, float]:
    """ "candidate=25" → its parts."""
    name, equals, percent = text.rpartition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"'{text}' is no weight; give ARM=PERCENT")
    return name, share(percent)


def match(text: str) -> Json:
    """ "x-tester: yes=candidate", or "x-agent: bot/*=stable" for what begins with "bot/"."""
    condition, equals, to = text.rpartition("=")
    header, colon, value = condition.partition(":")
    if not (equals and colon):
        raise argparse.ArgumentTypeError(f"'{text}' is no rule; give 'HEADER: VALUE=ARM'")
    prefix = value.endswith("*")
    text = value.strip().removesuffix("*") if prefix else value.strip()
    return {"header": header.strip(), "value": text, "prefix": prefix, "arm": to}


def mirror(text: str) -> Json:
    """ "candidate=5" → copies of 5 % of the requests for it."""
    name, percent = weight(text)
    return {"arm": name, "percent": percent}


def _terms(given: argparse.Namespace) -> dict[str, Any]:
    fields = {
        "arms": given.arm,
        "unit": given.unit,
        "salt": given.salt,
        "matches": given.match,
        "mirrors": given.mirror,
    }
    terms = {name: value for name, value in fields.items() if value is not None}
    if given.no_rules:
        terms |= {"matches": [], "mirrors": []}
    return terms


def _before(path: str, api: ApiClient) -> tuple[Json, dict[str, str]]:
    """The terms of the route as it is, and headers that let it change only from there."""
    try:
        found, etag = api.get_with_etag(path, RouteDocument)
    except RequestRejected as error:
        if error.status != 404:
            raise
        empty = {"arms": [], "unit": "", "salt": "", "matches": [], "mirrors": []}
        return empty, {"If-None-Match": "*"}
    return {name: getattr(found, name) for name in _TERMS}, {"If-Match": etag}


def _forced(given: argparse.Namespace) -> str:
    return "?force=true" if given.force else ""


def _shown_route(route: RouteDocument, api: ApiClient) -> Shown:
    arms = ", ".join(_arm_text(one) for one in route.arms)
    only = f"; all goes to {route.only}" if route.only else ""
    try:
        targets = targets_of(api, [one for one in route.arms if one.weight])
    except (RequestRejected, ServerUnreachable):  # it is made, and more may not be asked
        targets = []
    return MessageOutput(f"{route.name}: {arms}{only}{unready(api, targets, 'route')}", route)


def _arm_text(one: ArmOfRoute) -> str:
    whom = f"{one.model}@{one.alias}" if one.alias else f"{one.model}:{one.version}"
    return f"{one.name}={whom} {one.weight:g} %"


_NAME = argument("NAME", "The public name.")
_FORCE = argument(
    "--force",
    "Also while a rollout or an experiment uses the route; these are ended.",
    action="store_true",
)

COMMANDS = (
    CliCommand("route list", "list the routes", list_routes, (limited(),)),
    CliCommand("route show", "show a route, its arms and rules", show_route, (_NAME,)),
    CliCommand(
        "route set",
        "create a route or change it; what is not given stays as it is",
        set_route,
        (
            _NAME,
            argument(
                "--arm",
                "An arm as NAME=MODEL:VERSION=PERCENT or NAME=MODEL@ALIAS=PERCENT; repeat it for "
                "all of them, the stable one first.",
                action="append",
                type=arm,
            ),
            argument(
                "--weight",
                "A new weight as ARM=PERCENT; the stable arm gets what is left.",
                action="append",
                type=weight,
            ),
            argument(
                "--unit",
                "What stays with its arm: header:NAME, parameter:NAME, key, sequence; '' to draw "
                "anew for each request.",
            ),
            argument("--salt", "Decides which units an arm gets."),
            argument(
                "--match",
                "A rule as 'HEADER: VALUE=ARM'; a * at the value's end stands for anything.",
                action="append",
                type=match,
            ),
            argument(
                "--mirror",
                "Mirror as ARM=PERCENT of the requests.",
                action="append",
                type=mirror,
            ),
            argument("--no-rules", "Remove rules and mirrors.", action="store_true"),
            _FORCE,
        ),
    ),
    CliCommand(
        "route kill",
        "turn the kill switch on: send all of a route's requests to one arm at once; ends a "
        "rollout under way",
        kill,
        (_NAME, argument("ARM", "The arm; the stable one if not given.", nargs="?")),
    ),
    CliCommand(
        "route unkill", "turn the kill switch off: weights and rules apply again", unkill, (_NAME,)
    ),
    CliCommand("route delete", "delete a route", delete, (_NAME, _FORCE)),
    CliCommand(
        "route explain",
        "explain which arm a unit gets, and why",
        explain,
        (
            _NAME,
            argument("--unit", "The unit, e.g. a user's id."),
            argument("--header", "A header as 'NAME: VALUE'; repeat it.", action="append"),
        ),
    ),
)
