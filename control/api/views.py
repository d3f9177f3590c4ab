"""What of a view is shown where its JSON is not just its fields; tests hold it to answers."""

from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, get_type_hints

from control.api.comparison_views import TRIALS
from control.api.schemas import Schema, schema_of, view_schema
from control.deployments.pushes import PushView
from control.deployments.repositories import RepositoryView
from control.deployments.versions import ModelView, VersionView
from control.routes.service import RouteView
from control.servers import ServerView

HIDDEN = None


@dataclass(frozen=True, slots=True)
class VersionStateView:
    """What a server says of a version."""

    server: str
    state: str
    reason: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a version came from."""

    repository: str | None
    push: str | None
    source: str
    pusher: str
    signer: str


@dataclass(frozen=True, slots=True)
class VersionOfModel:
    """A version in its model's view."""

    version: int
    digest: str
    deployed: bool
    states: list[VersionStateView]
    aliases: list[str]


@dataclass(frozen=True, slots=True)
class ArmOfRoute:
    """Who may answer; `weight` in percent, and a version or an alias."""

    name: str
    model: str
    version: int | None
    alias: str | None
    weight: float


@dataclass(frozen=True, slots=True)
class RuleOfRoute:
    """Requests that go to an arm whatever the weights are."""

    header: str
    value: str
    prefix: bool
    arm: str


@dataclass(frozen=True, slots=True)
class MirrorOfRoute:
    """An arm that gets copies of so many percent of the requests."""

    arm: str
    percent: float


_DIFFERENT: dict[type, dict[str, Any]] = {
    **TRIALS,
    PushView: {"sequence": HIDDEN},
    RepositoryView: {"deploy_ref": str},
    RouteView: {
        "spec": HIDDEN,
        "arms": list[ArmOfRoute],
        "unit": str,
        "salt": str,
        "matches": list[RuleOfRoute],
        "mirrors": list[MirrorOfRoute],
        "only": str | None,
        "rollout": str | None,
    },
    ServerView: {"boot": HIDDEN},
    VersionView: {
        **dict.fromkeys(("number", "repository", "push", "source", "pusher", "signer"), HIDDEN),
        "version": int,
        "provenance": Provenance,
        "states": list[VersionStateView],
    },
    ModelView: {
        "versions": list[VersionOfModel],
        "aliases": dict[str, int],
        "states": list[VersionStateView],
    },
}


def shown_schema(kind: type, into: dict[str, Schema]) -> Schema:
    """A reference to the schema of the view's JSON, put `into` the components."""
    if kind not in _DIFFERENT:
        return view_schema(kind, into)
    name = kind.__name__.removesuffix("View")
    hints = get_type_hints(kind)
    shown = {one.name: hints[one.name] for one in fields(kind)} | _DIFFERENT[kind]
    properties = {
        field: schema_of(shape, into) for field, shape in shown.items() if shape is not HIDDEN
    }
    into[name] = {"type": "object", "properties": properties, "required": list(properties)}
    return {"$ref": f"#/components/schemas/{name}"}
