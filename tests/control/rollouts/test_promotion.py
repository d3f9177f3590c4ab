"""What a deployment does to who answers a model's name."""

import pytest

from control.desired import DesiredArm
from control.rollouts import queries
from control.rollouts.plan import Mode, RolloutPlan
from control.rollouts.promotion import Promotion, succeed
from control.rollouts.route_weights import RolloutRoutes
from control.rollouts.state import Phase
from control.routes.service import find_route, set_route
from control.routes.spec import RouteSpec
from control.sql.database import Database
from support.control import ADA
from support.control_deploy import deployed, repository, sealed

PROGRESSIVE = RolloutPlan(mode=Mode.PROGRESSIVE)
WRITER = RolloutRoutes()


def versions(database: Database) -> None:
    """A model `m` whose versions 1 to 3 are deployed."""
    repository(database)
    deployed(database, 1, sealed("m", {1: "one", 2: "two", 3: "three"}))


def apply(database: Database, before: int | None, after: int, plan: RolloutPlan | None) -> None:
    with database.change(ADA) as tx:
        succeed(tx, WRITER, Promotion("m", before, after, plan))


def phases(database: Database) -> list[tuple[int, Phase]]:
    with database.reading() as session:
        found = queries.list_rollouts(session).items
        return [(view.candidate, view.phase) for view in found]


def arms(database: Database) -> dict[str, tuple[int, int]]:
    with database.reading() as session:
        route = find_route(session, "m")
        return {arm.name: (arm.version, arm.weight) for arm in route.spec.arms} if route else {}


def test_a_first_version_needs_no_rollout(database: Database) -> None:
    versions(database)
    apply(database, None, 1, PROGRESSIVE)
    assert phases(database) == []


def test_a_version_takes_over_at_once_where_the_config_says_nothing(database: Database) -> None:
    versions(database)
    apply(database, 1, 2, None)
    assert (phases(database), arms(database)) == ([], {})


def test_a_progressive_version_begins_with_the_stable_one_in_place(database: Database) -> None:
    versions(database)
    apply(database, 1, 2, PROGRESSIVE)
    assert phases(database) == [(2, Phase.PENDING)]
    assert arms(database) == {"stable": (1, 10_000), "candidate": (2, 0)}


def test_a_newer_version_supersedes_and_the_stable_one_stays(database: Database) -> None:
    versions(database)
    apply(database, 1, 2, PROGRESSIVE)
    apply(database, 2, 3, PROGRESSIVE)
    assert phases(database) == [(3, Phase.PENDING), (2, Phase.SUPERSEDED)]
    assert arms(database)["stable"] == (1, 10_000)


def test_going_back_to_the_stable_version_ends_the_rollout(database: Database) -> None:
    versions(database)
    apply(database, 1, 2, PROGRESSIVE)
    apply(database, 2, 1, PROGRESSIVE)
    assert phases(database) == [(2, Phase.ABORTING)]


def test_an_immediate_version_replaces_what_a_rollout_left_in_place(database: Database) -> None:
    versions(database)
    apply(database, 1, 2, PROGRESSIVE)
    apply(database, 2, 3, None)
    assert phases(database)[0] == (3, Phase.PENDING)


def test_a_route_that_a_person_has_split_is_left_alone(database: Database) -> None:
    versions(database)
    split = RouteSpec((DesiredArm("old", "m", 1, "", 5_000), DesiredArm("new", "m", 2, "", 5_000)))
    with database.change(ADA) as tx:
        set_route(tx, "m", split)
    apply(database, 1, 3, PROGRESSIVE)
    assert phases(database) == []
    assert set(arms(database)) == {"old", "new"}


@pytest.mark.parametrize("version", [1, 2])
def test_the_same_version_again_changes_nothing(database: Database, version: int) -> None:
    versions(database)
    apply(database, version, version, PROGRESSIVE)
    assert (phases(database), arms(database)) == ([], {})
