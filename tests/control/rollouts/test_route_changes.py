"""What a person may do to a route while a rollout moves it, or an experiment watches it."""

from collections.abc import Callable
from typing import Any

import pytest

from control.desired import DesiredArm, Match
from control.errors import Conflict, Stale
from control.experiments import service as experiments
from control.experiments.views import ExperimentState
from control.rollouts import queries, route_changes
from control.rollouts import service as rollouts
from control.rollouts.plan import Mode, RolloutPlan, RolloutStep
from control.rollouts.route_weights import RolloutRoutes
from control.rollouts.service import CandidateRequest
from control.rollouts.state import Phase
from control.routes import service as routes
from control.routes.service import RouteView
from control.routes.spec import RouteSpec
from control.sql.database import Database
from support.control import ADA, told
from support.control_deploy import deployed, repository, sealed
from support.experiments import started

WRITER = RolloutRoutes()
PLAN = RolloutPlan(mode=Mode.PROGRESSIVE, mirror=None, steps=(RolloutStep(2_500, 600, 10),))
WHOLE = DesiredArm("stable", "digits", 1, "", 10_000)
SPLIT = (
    DesiredArm("stable", "digits", 1, "", 5_000),
    DesiredArm("candidate", "digits", 2, "", 5_000),
)
ARMS = [
    {"name": "stable", "model": "digits", "version": 1},
    {"name": "candidate", "model": "digits", "version": 2},
]


@pytest.fixture(autouse=True)
def digits(database: Database) -> None:
    repository(database)
    deployed(database, 1, sealed("digits", {1: "a", 2: "b", 3: "c"}))


def change(database: Database, what: Callable[..., Any], *given: Any, **more: Any) -> Any:
    with database.change(ADA) as tx:
        return what(tx, *given, **more)


def route(database: Database, *arms: DesiredArm, **terms: Any) -> RouteView:
    spec = RouteSpec(arms, **{"unit": "header:x-user", "salt": "s", **terms})
    return change(database, route_changes.set_route, "digits", spec)


def rolling(database: Database, candidate: int = 2) -> str:
    route(database, WHOLE)
    wish = CandidateRequest("digits", "digits", candidate, 1)
    return str(change(database, rollouts.start, WRITER, wish, PLAN).id)


def watched(database: Database, **terms: Any) -> None:
    started(database, route="digits", arms=ARMS, **terms)


def phase(database: Database, rollout: str) -> tuple[Phase, str]:
    with database.reading() as session:
        view = queries.get_rollout(session, rollout)
        return view.phase, view.reason


def state(database: Database) -> ExperimentState:
    with database.reading() as session:
        return experiments.get_experiment(session, "colour").state


def standing(database: Database) -> RouteView | None:
    with database.reading() as session:
        return routes.find_route(session, "digits")


def test_the_kill_switch_takes_a_rollout_back_in_one_transaction(database: Database) -> None:
    rollout = rolling(database)
    before = len(told(database))
    view = change(database, route_changes.kill, "digits")
    assert phase(database, rollout) == (
        Phase.DEGRADED,
        "rolled back: user:ada turned on the kill switch",
    )
    assert (view.only, view.spec.arms, view.rollout) == ("stable", (WHOLE,), "")
    kinds = [kind for kind, _ in told(database)[before:]]
    assert kinds[-1] == "route.killed"
    assert [kind for kind in kinds if kind.startswith("rollout.")] == [
        "rollout.abort",
        "rollout.degrade",
    ]


def test_the_kill_switch_does_not_send_all_to_a_candidate(database: Database) -> None:
    rollout = rolling(database)
    with pytest.raises(Conflict, match="modelyard rollout promote-full digits"):
        change(database, route_changes.kill, "digits", "candidate")
    assert phase(database, rollout)[0] is Phase.PENDING


def test_the_kill_switch_leaves_an_experiment_running(database: Database) -> None:
    route(database, *SPLIT)
    watched(database)
    assert change(database, route_changes.kill, "digits", "candidate").only == "candidate"
    assert state(database) is ExperimentState.RUNNING


@pytest.mark.parametrize(
    "spoil",
    [
        lambda tx, **more: route_changes.delete_route(tx, "digits", **more),
        lambda tx, **more: route_changes.set_route(
            tx, "digits", RouteSpec((WHOLE,), unit="key"), **more
        ),
        lambda tx, **more: route_changes.set_route(
            tx, "digits", RouteSpec((DesiredArm("stable", "digits", 3, "", 10_000),)), **more
        ),
    ],
    ids=["delete", "unit", "arms"],
)
def test_what_needs_a_route_is_named_and_ended_by_force_alone(
    database: Database, spoil: Callable[..., Any]
) -> None:
    rollout = rolling(database)
    with pytest.raises(Conflict, match=rf"the rollout {rollout} moves.*rollout abort digits"):
        change(database, spoil)
    change(database, spoil, force=True)
    assert phase(database, rollout) == (Phase.DEGRADED, "rolled back: user:ada changed the route")
    if standing(database) is None:
        route(database, *SPLIT)
    else:
        change(database, routes.set_route, "digits", RouteSpec(SPLIT, "header:x-user", "s"))
    watched(database)
    with pytest.raises(Conflict, match=r"the experiment .colour. compares.*experiment stop colour"):
        change(database, spoil)
    assert state(database) is ExperimentState.RUNNING
    change(database, spoil, force=True)
    assert state(database) is ExperimentState.STOPPED


def test_weights_that_an_experiment_is_about_stay_as_they_are(database: Database) -> None:
    route(database, *SPLIT)
    watched(database)
    with pytest.raises(Conflict, match="the experiment 'colour' compares"):
        change(database, route_changes.set_weights, "digits", {"candidate": 100})
    change(database, route_changes.set_weights, "digits", {"candidate": 5_000})  # as they are
    change(database, route_changes.set_weights, "digits", {"candidate": 100}, force=True)
    assert state(database) is ExperimentState.STOPPED


def test_rules_for_testers_may_be_changed_all_the_time(database: Database) -> None:
    rollout = rolling(database)
    view = standing(database)
    assert view is not None
    rule = Match("x-tester", "yes", "candidate")
    arms, terms = view.spec.arms, {"salt": view.spec.salt, "matches": (rule,)}
    assert route(database, *arms, **terms).spec.matches == (rule,)
    assert phase(database, rollout)[0] is Phase.PENDING


def test_a_forced_change_is_still_held_against_its_revision(database: Database) -> None:
    rollout = rolling(database)
    with pytest.raises(Stale):
        change(database, route_changes.delete_route, "digits", 1, force=True)
    assert phase(database, rollout)[0] is Phase.PENDING
    change(database, route_changes.delete_route, "digits", 2, force=True)
    assert standing(database) is None


def test_no_rollout_begins_under_a_kill_switch_that_is_on(database: Database) -> None:
    route(database, WHOLE)
    change(database, route_changes.kill, "digits")
    with pytest.raises(Conflict, match="modelyard route unkill digits"):
        change(database, rollouts.start, WRITER, CandidateRequest("digits", "digits", 2, 1), PLAN)


def test_an_experiment_on_a_rollout_ends_with_its_candidate(database: Database) -> None:
    rollout = rolling(database)
    watched(database)
    assert state(database) is ExperimentState.RUNNING
    with database.change(ADA) as tx:
        rollouts.call_off(tx, WRITER, rollout, "enough")
    assert state(database) is ExperimentState.STOPPED


def test_a_rollout_that_is_called_off_twice_has_been_once(database: Database) -> None:
    rollout = rolling(database)
    change(database, rollouts.call_off, WRITER, rollout, "enough")
    before = told(database)
    change(database, rollouts.call_off, WRITER, rollout, "again")
    assert told(database) == before
