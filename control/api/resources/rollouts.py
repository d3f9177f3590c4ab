"""Rollouts: begun by a push or by hand, watched, and told what to do."""

from collections.abc import Callable
from typing import Annotated, Any
from urllib.parse import quote

from msgspec.structs import asdict
from sqlalchemy.orm import Session

from control.access.scopes import Action
from control.api.body_fields import ApiBody, Positive, Text, meaning
from control.api.call import Access, AuthorizedCall, EndpointResult, Operation, Param
from control.api.responses import from_page
from control.deployments.versions import get_model
from control.errors import Conflict, Invalid
from control.rollouts import queries, service
from control.rollouts.commands import RolloutCommand
from control.rollouts.evidence import RolloutEvidence, evidence_of
from control.rollouts.expectations import outlook_of
from control.rollouts.outlook import RolloutOutlook
from control.rollouts.plan_keys import parse_plan
from control.rollouts.route_changes import running_on
from control.rollouts.route_weights import RolloutRoutes
from control.rollouts.service import CandidateRequest
from control.rollouts.signals import signals_of
from control.rollouts.views import RolloutView, Standing
from control.routes.service import RouteView, find_route


class StartedRollout(RolloutView, frozen=True, kw_only=True):
    """`outlook`: what its plan can tell at the traffic that there is."""

    outlook: RolloutOutlook


_READ = Access(Action.READ)
_OPERATE = Access(Action.OPERATE)
_ONE = "/rollouts/{rollout}"
_WORDS = {
    RolloutCommand.PROMOTE: "Promote to the next step without waiting for the end of this one",
    RolloutCommand.PROMOTE_FULL: "Promote: send all traffic to the candidate now",
    RolloutCommand.PAUSE: "Hold the current weight until resumed",
    RolloutCommand.RESUME: "Resume, whatever the pause reason",
    RolloutCommand.ABORT: "Roll back: send all traffic to the stable version at once",
    RolloutCommand.RETRY: "Retry a rollout that was rolled back",
}


class NewRollout(ApiBody, frozen=True):
    """`plan` has the keys of docs/rollouts.md; what it does not say is the default."""

    name: Annotated[Text, meaning("The model's name.", examples=["digits"])]
    candidate: Annotated[Positive, meaning("The candidate version.", examples=[2])]
    plan: Annotated[
        dict[str, Any] | None,
        meaning("Steps, holds and guardrails.", examples=[{"steps": "1, 10, 100", "hold": "10m"}]),
    ] = None


def list_(call: AuthorizedCall) -> EndpointResult:
    with call.services.database.reading() as session:
        name, phase = call.query.get("name"), call.query.get("phase")
        found = queries.list_rollouts(session, name=name, phase=phase, **call.paging())
        return from_page(found)


def show(call: AuthorizedCall) -> EndpointResult:
    with call.services.database.reading() as session:
        return _one(queries.get_rollout(session, call.path["rollout"]))


def standing(call: AuthorizedCall) -> EndpointResult:
    with call.services.database.reading() as session:
        rollout = call.path["rollout"]
        found = queries.standing(session, rollout, call.now, signals_of(session, rollout))
        return EndpointResult(found)


def evidence(call: AuthorizedCall) -> EndpointResult:
    with call.services.database.reading() as session:
        rollout = queries.get_rollout(session, call.path["rollout"])
        return EndpointResult(evidence_of(session, rollout.id))


def start(call: AuthorizedCall) -> EndpointResult:
    given = call.given(NewRollout)
    plan = parse_plan(given.plan or {})
    with call.services.database.change(call.actor) as tx:
        model = get_model(tx.session, given.name)
        route = find_route(tx.session, given.name)
        if route is None:
            raise Conflict(
                f"'{given.name}' has no route; create one that keeps the current version in place "
                f"(modelyard route set {given.name} --arm stable={given.name}:VERSION=100), then "
                "roll out"
            )
        stable = _stable(tx.session, route)
        if given.candidate not in [one.version for one in model.versions]:
            versions = ", ".join(str(one.version) for one in model.versions)
            raise Invalid(
                f"'{given.name}' has no version {given.candidate}; it has {versions}", "candidate"
            )
        wish = CandidateRequest(given.name, given.name, given.candidate, stable)
        view = service.start(tx, RolloutRoutes(), wish, plan)
    with call.services.database.reading() as session:
        expected = outlook_of(session, call.services.series, view.id, call.now)
    return _one(StartedRollout(**asdict(view), outlook=expected), 201)


def show_outlook(call: AuthorizedCall) -> EndpointResult:
    services = call.services
    with services.database.reading() as session:
        found = outlook_of(session, services.series, call.path["rollout"], call.now)
        return EndpointResult(found)


def _stable(session: Session, route: RouteView) -> int:
    """The version to keep in place. Raises Conflict where the route has to stay as it is."""
    arm = route.spec.arms[0]
    if not arm.version:
        raise Conflict(
            f"the arm '{arm.name}' of the route '{route.name}' leads to the alias '{arm.alias}', "
            f"which may move; give it a version first (modelyard route set {route.name} --arm "
            f"{arm.name}={arm.model}:VERSION=100)"
        )
    under_way = any(one.name == route.name for one in queries.active(session))
    if not under_way and (names := running_on(session, route.name)):
        raise Conflict(
            f"the experiment '{names[0]}' compares the arms of the route '{route.name}'; stop it "
            f"first (modelyard experiment stop {names[0]})"
        )
    return arm.version


def _commanding(command: RolloutCommand) -> Callable[[AuthorizedCall], EndpointResult]:
    def tell(call: AuthorizedCall) -> EndpointResult:
        with call.services.database.change(call.actor) as tx:
            command_request = service.command(
                tx, RolloutRoutes(), call.path["rollout"], command, call.expected
            )
        return _one(command_request)

    return tell


def _one(view: RolloutView, status: int = 200) -> EndpointResult:
    return EndpointResult(view, status, view.revision, f"/api/v1/rollouts/{quote(view.id)}")


OPERATIONS = (
    Operation(
        verb="GET",
        path="/rollouts",
        access=_READ,
        tag="Rollouts",
        summary="Rollouts, the newest first",
        run=list_,
        list_of=RolloutView,
        query=(
            Param("name", "Only those of this name."),
            Param("phase", "Only those in this phase."),
        ),
    ),
    Operation(
        verb="POST",
        path="/rollouts",
        access=_OPERATE,
        tag="Rollouts",
        summary="Roll a version out by hand",
        run=start,
        takes=NewRollout,
        gives=StartedRollout,
        status=201,
    ),
    Operation(
        verb="GET",
        path=_ONE,
        access=_READ,
        tag="Rollouts",
        summary="A rollout: its phase and the reason",
        run=show,
        gives=RolloutView,
    ),
    Operation(
        verb="GET",
        path=f"{_ONE}/standing",
        access=_READ,
        tag="Rollouts",
        summary="The analysis of a rollout at this moment: verdicts, and requests by arm",
        run=standing,
        gives=Standing,
    ),
    Operation(
        verb="GET",
        path=f"{_ONE}/outlook",
        access=_READ,
        tag="Rollouts",
        summary="What a rollout's plan can tell at the present traffic, and how long it takes",
        run=show_outlook,
        gives=RolloutOutlook,
    ),
    Operation(
        verb="GET",
        path=f"{_ONE}/evidence",
        access=_READ,
        tag="Rollouts",
        summary="What was seen of a rollout and when: its moves, and moments between them",
        run=evidence,
        gives=RolloutEvidence,
    ),
    *(
        Operation(
            verb="POST",
            path=f"{_ONE}/{command.replace('_', '-')}",
            access=_OPERATE,
            tag="Rollouts",
            summary=words,
            run=_commanding(command),
            gives=RolloutView,
            if_match=True,
        )
        for command, words in _WORDS.items()
    ),
)
