"""Rollouts: begun by a push or by hand, watched, and told what to do."""

from collections.abc import Callable
from typing import Annotated, Any
from urllib.parse import quote

from msgspec.structs import asdict

from control.access.scopes import Action
from control.api.body_fields import ApiBody, Positive, Text, meaning
from control.api.call import Access, AuthorizedCall, EndpointResult, Operation, Param
from control.api.responses import from_page
from control.rollouts import queries, service
from control.rollouts.commands import RolloutCommand
from control.rollouts.evidence import RolloutEvidence, evidence_of
from control.rollouts.expectations import outlook_of
from control.rollouts.outlook import RolloutOutlook
from control.rollouts.plan_keys import parse_plan
from control.rollouts.route_start import roll_out
from control.rollouts.route_weights import RolloutRoutes
from control.rollouts.signals import signals_of
from control.rollouts.views import RolloutView, Standing


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
        view = roll_out(tx, given.name, given.candidate, plan)
    call.services.series.write_held()
    with call.services.database.reading() as session:
        expected = outlook_of(session, call.services.series, view.id, call.now)
    return _one(StartedRollout(**asdict(view), outlook=expected), 201)


def show_outlook(call: AuthorizedCall) -> EndpointResult:
    services = call.services
    services.series.write_held()
    with services.database.reading() as session:
        found = outlook_of(session, services.series, call.path["rollout"], call.now)
        return EndpointResult(found)


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
