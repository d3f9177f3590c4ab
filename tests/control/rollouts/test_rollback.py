"""Back to an earlier version: where to, by what, and what a rolled-back version loses."""

import pytest

from control import loads, servers
from control.desired import DesiredArm
from control.errors import Conflict, Invalid, NotFound
from control.rollouts import counts, queries, service
from control.rollouts.arms import RolloutTotals
from control.rollouts.commands import RolloutCommand
from control.rollouts.counts import GatewayReport
from control.rollouts.history import rolled_back
from control.rollouts.plan import RolloutPlan, RolloutStep
from control.rollouts.promotion import Promotion, succeed
from control.rollouts.rollback import AT_ONCE, RollbackView, roll_back, rollback_of
from control.rollouts.route_weights import RolloutRoutes
from control.rollouts.service import CandidateRequest
from control.rollouts.state import Phase
from control.rollouts.views import RolloutView
from control.routes import service as routes
from control.routes.service import find_route
from control.routes.spec import RouteSpec
from control.sql.database import SYSTEM, Database
from support.control import ADA
from support.control_deploy import deployed, repository, sealed

STEPWISE = RolloutPlan(mirror=None, steps=(RolloutStep(5_000, 0, 1),))
WRITER = RolloutRoutes()


@pytest.fixture
def yard(database: Database) -> Database:
    """A model `m` with the versions 1 to 4, all of them loaded; 4 answers."""
    repository(database)
    deployed(database, 1, sealed("m", {number: str(number) for number in (1, 2, 3, 4)}))
    told(database, {1: "READY", 2: "READY", 3: "READY", 4: "READY"})
    return database


def told(database: Database, states: dict[int, str]) -> None:
    with database.change(SYSTEM) as tx:
        servers.register(tx, "srv-1", "boot-1", "0.1", "http://127.0.0.1:1")
        loads.record(tx, "srv-1", [("m", number, *_state(one)) for number, one in states.items()])


def _state(state: str) -> tuple[str, str]:
    return state, "no such file" if state == "FAILED" else ""


def settle(database: Database) -> None:
    """The controller looks until nothing moves."""
    for _ in range(20):
        with database.reading() as session:
            under_way = queries.under_way(session)
        moved = False
        for one in under_way:
            with database.change(SYSTEM) as tx:
                counts.record(tx, one, "srv-1", "p1", GatewayReport(RolloutTotals()))
                moved = service.tick(tx, WRITER, one).moved or moved
        if not moved:
            return


def back(
    database: Database, to: int | None = None, plan: RolloutPlan = AT_ONCE, why: str = ""
) -> RolloutView:
    with database.change(ADA) as tx:
        return roll_back(tx, "m", to, plan, why)


def offer(database: Database) -> RollbackView:
    with database.reading() as session:
        return rollback_of(session, "m")


def arms(database: Database) -> dict[str, tuple[int, int]]:
    with database.reading() as session:
        route = find_route(session, "m")
        return {arm.name: (arm.version, arm.weight) for arm in route.spec.arms} if route else {}


def rollout(database: Database, candidate: int, stable: int, plan: RolloutPlan = AT_ONCE) -> str:
    with database.change(ADA) as tx:
        wish = CandidateRequest("m", "m", candidate, stable)
        return service.start(tx, WRITER, wish, plan).id


def lost(database: Database) -> dict[int, str]:
    with database.reading() as session:
        return {one.version: one.reason for one in rolled_back(session, "m")}


def test_without_any_rollout_the_version_below_is_the_one_to_go_back_to(yard: Database) -> None:
    assert (offer(yard).serving, offer(yard).to) == (4, 3)
    assert [one.version for one in offer(yard).targets] == [3, 2, 1]
    view = back(yard)
    assert (view.stable, view.candidate) == (4, 3)
    assert arms(yard) == {"stable": (4, 10_000), "candidate": (3, 0)}
    settle(yard)
    assert arms(yard) == {"stable": (3, 10_000)}


def test_what_was_stable_last_is_preselected(yard: Database) -> None:
    rollout(yard, 4, 2)
    settle(yard)
    found = offer(yard)
    assert (found.serving, found.to) == (4, 2)
    assert [one.version for one in found.targets if one.stable_until] == [2]


def test_a_version_that_was_rolled_back_says_so_and_is_not_preselected(yard: Database) -> None:
    back(yard, why="too slow")
    settle(yard)
    assert lost(yard) == {4: "rolled back to version 3, requested by user:ada: too slow"}
    found = offer(yard)
    assert (found.serving, found.to) == (3, 2)
    assert [one.rolled_back for one in found.targets] == [True, False, False]
    assert back(yard).candidate == 2


def test_during_a_rollout_it_ends_it_and_the_stable_version_has_all_at_once(yard: Database) -> None:
    rollout(yard, 4, 3, STEPWISE)
    settle(yard)
    assert offer(yard).to == 3
    view = back(yard, why="errors")
    assert (view.candidate, view.phase) == (4, Phase.DEGRADED)
    assert arms(yard) == {"stable": (3, 10_000)}
    assert lost(yard) == {4: "rolled back: to version 3, requested by user:ada: errors"}


def test_during_a_rollout_it_may_go_further_back(yard: Database) -> None:
    rollout(yard, 4, 3, STEPWISE)
    settle(yard)
    assert back(yard, 1).stable == 3
    settle(yard)
    assert arms(yard) == {"stable": (1, 10_000)}
    assert set(lost(yard)) == {3, 4}


@pytest.mark.parametrize("again", [None, 3])
def test_who_asks_for_the_same_again_gets_the_rollback_that_is_under_way(
    yard: Database, again: int | None
) -> None:
    told(yard, {4: "READY", 3: "LOADING"})
    first = back(yard, 3, why="errors")
    assert back(yard, again, why="a second click").id == first.id
    told(yard, {4: "READY", 3: "READY"})
    settle(yard)
    assert arms(yard) == {"stable": (3, 10_000)}
    assert lost(yard) == {4: "rolled back to version 3, requested by user:ada: errors"}


def test_a_rollback_under_way_ends_for_one_to_another_version(yard: Database) -> None:
    told(yard, {4: "READY", 3: "LOADING", 1: "READY"})
    first = back(yard, 3)
    assert back(yard, 1).id != first.id
    settle(yard)
    assert arms(yard) == {"stable": (1, 10_000)}


def test_a_version_that_is_not_loaded_gets_nothing_before_it_is(yard: Database) -> None:
    told(yard, {4: "READY"})
    back(yard, 2)
    settle(yard)
    assert arms(yard) == {"stable": (4, 10_000), "candidate": (2, 0)}
    told(yard, {4: "READY", 2: "READY"})
    settle(yard)
    assert arms(yard) == {"stable": (2, 10_000)}


def test_a_version_that_cannot_be_loaded_leaves_all_as_it_was_and_says_so(yard: Database) -> None:
    told(yard, {4: "READY", 2: "FAILED"})
    view = back(yard, 2)
    settle(yard)
    with yard.reading() as session:
        ended = queries.get_rollout(session, view.id)
    assert ended.phase is Phase.DEGRADED
    assert ended.reason == ("not gone back, all traffic stays: it failed: srv-1: no such file")
    assert arms(yard) == {"stable": (4, 10_000)}
    assert lost(yard) == {}


def test_it_goes_by_steps_where_a_plan_says_so_although_the_version_was_stable(
    yard: Database,
) -> None:
    rollout(yard, 4, 3)
    settle(yard)
    back(yard, 3, STEPWISE)
    settle(yard)
    assert arms(yard) == {"stable": (4, 5_000), "candidate": (3, 5_000)}


def test_a_push_that_changes_something_else_does_not_bring_it_back(yard: Database) -> None:
    back(yard)
    settle(yard)
    with yard.change(ADA) as tx:
        assert succeed(tx, WRITER, Promotion("m", 4, 4, RolloutPlan())) is None
    assert arms(yard) == {"stable": (3, 10_000)}


def test_a_rolled_back_version_takes_its_steps_when_it_is_rolled_out_again(yard: Database) -> None:
    rollout(yard, 4, 3)
    settle(yard)
    back(yard)
    settle(yard)
    rollout(yard, 4, 3, STEPWISE)
    settle(yard)
    assert arms(yard) == {"stable": (3, 5_000), "candidate": (4, 5_000)}


def test_a_version_that_became_stable_again_was_not_rolled_back(yard: Database) -> None:
    identity = rollout(yard, 4, 3, STEPWISE)
    settle(yard)
    back(yard)
    with yard.change(ADA) as tx:
        service.command(tx, WRITER, identity, RolloutCommand.RETRY)
    settle(yard)
    with yard.change(ADA) as tx:
        service.command(tx, WRITER, identity, RolloutCommand.PROMOTE_FULL)
    settle(yard)
    assert lost(yard) == {}


@pytest.mark.parametrize(
    ("to", "error", "words"),
    [
        (4, Conflict, "'m' is served by version 4 already"),
        (9, Invalid, "'m' has no version 9; it has 3, 2, 1"),
    ],
)
def test_what_cannot_be_is_refused_and_says_what_can(
    yard: Database, to: int, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        back(yard, to)
    assert arms(yard) == {}


def test_a_model_nobody_knows_has_no_rollback(yard: Database) -> None:
    with yard.reading() as session, pytest.raises(NotFound, match="there is no model 'x'"):
        rollback_of(session, "x")


def test_the_event_says_who_and_why(yard: Database) -> None:
    view = back(yard, why="too slow")
    assert view.reason == "back from version 4 to version 3, requested by user:ada: too slow"
    assert view.rollback == "requested by user:ada: too slow"


@pytest.mark.parametrize(
    ("arms", "why"),
    [
        ((("a", "m", 3, "", 5_000), ("b", "m", 4, "", 5_000)), "has the arms a, b; a rollout of"),
        ((("only", "other", 1, "", 10_000),), "needs one with that model alone"),
        ((("only", "m", 0, "best", 10_000),), "leads to the alias 'best'; move that instead"),
    ],
)
def test_a_route_that_no_rollback_can_move_says_why(
    yard: Database, arms: tuple[tuple[str, str, int, str, int], ...], why: str
) -> None:
    with yard.change(ADA) as tx:
        routes.own(tx, "m", RouteSpec(arms=tuple(DesiredArm(*one) for one in arms)), "")
    with yard.reading() as session:
        assert why in rollback_of(session, "m").blocked
    with yard.change(ADA) as tx, pytest.raises(Conflict, match=why):
        roll_back(tx, "m", 3)


def test_a_name_whose_traffic_a_rollback_can_move_is_not_blocked(yard: Database) -> None:
    with yard.reading() as session:
        assert rollback_of(session, "m").blocked == ""
