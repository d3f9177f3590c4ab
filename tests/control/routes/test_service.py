"""Routes are changed whole, by compare-and-set, and lead only to what exists."""

from typing import Any

import pytest
from msgspec.structs import replace

from control import loads
from control.clock import utc_now
from control.deployments import aliases
from control.desired import DesiredArm, Match, Mirror, Pin
from control.desired_rows import desired
from control.errors import Conflict, Invalid, NotFound
from control.gateways.wire import decode_state, encode_state
from control.rollout_tables import Rollout
from control.rollouts.route_weights import RolloutRoutes
from control.rollouts.service import WeightRequest
from control.rollouts.state import Phase
from control.routes import service as routes
from control.routes.spec import RouteSpec
from control.sql.database import Database
from support.control import ADA, desired_revision, told
from support.control_deploy import deployed, repository, sealed

STABLE, CANDIDATE = (
    DesiredArm("stable", "digits", 1, "", 9_900),
    DesiredArm("candidate", "digits", 2, "", 100),
)
SPEC = RouteSpec((STABLE, CANDIDATE), "header:X-User", "salt")


@pytest.fixture(autouse=True)
def digits(database: Database) -> None:
    repository(database)
    deployed(database, 1, sealed("digits", {1: "a", 2: "b"}))


def _set(
    database: Database, spec: RouteSpec, expected: int | None = None, name: str = "numbers"
) -> routes.RouteView:
    with database.change(ADA) as tx:
        return routes.set_route(tx, name, spec, expected)


def _change(database: Database, change: Any, *given: Any) -> routes.RouteView:
    with database.change(ADA) as tx:
        return change(tx, "numbers", *given)


def test_a_route_is_made_changed_and_deleted_and_gateways_are_told(database: Database) -> None:
    before = desired_revision(database)
    made = _set(database, SPEC, 0)
    assert (made.revision, made.spec.unit, made.updated_by) == (1, "header:x-user", ADA.principal)
    halved = replace(SPEC, arms=(replace(STABLE, weight=5_000), replace(CANDIDATE, weight=5_000)))
    assert _set(database, halved, 1).revision == 2
    _change(database, routes.delete_route, 2)
    kinds = [kind for kind, subject in told(database) if subject == "route:numbers"]
    assert kinds == ["route.created", "route.changed", "route.deleted"]
    assert desired_revision(database) == before + 3
    with database.reading() as session, pytest.raises(NotFound, match="no route 'numbers'"):
        routes.get_route(session, "numbers")


def test_setting_it_as_it_stands_changes_nothing_and_keeps_the_salt(database: Database) -> None:
    salt = _set(database, replace(SPEC, salt="")).spec.salt
    assert len(salt) > 10
    before = told(database)
    assert _set(database, replace(SPEC, salt="")).spec.salt == salt
    assert told(database) == before


def test_a_route_that_was_changed_meanwhile_is_not_changed(database: Database) -> None:
    _set(database, SPEC)
    with pytest.raises(Conflict, match="route 'numbers' has been changed meanwhile"):
        _set(database, SPEC, 0)
    for change in (routes.delete_route, routes.unkill):
        with pytest.raises(Conflict, match="revision 1, you have 7"):
            _change(database, change, 7)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"arms": ()}, "1 to 16 arms, not 0"),
        ({"arms": (STABLE, STABLE)}, "two arms 'stable'"),
        ({"arms": (STABLE,)}, r"add up to 99 % instead of 100 %: stable 99"),
        ({"arms": (replace(STABLE, name="Stable"),)}, "'Stable' cannot name an arm"),
        ({"arms": (replace(STABLE, alias="best"),)}, "either a version or an alias of 'digits'"),
        ({"arms": (replace(STABLE, version=9), CANDIDATE)}, "'stable' leads nowhere: .* version 9"),
        ({"arms": (replace(STABLE, model="no"), CANDIDATE)}, "'stable' leads nowhere: .* 'no'"),
        ({"arms": (replace(STABLE, version=0, alias="best"), CANDIDATE)}, "no alias 'digits@best'"),
        ({"unit": "cookie:x"}, "the unit 'cookie:x' is none; give 'header:NAME'"),
        ({"matches": (Match("X-Who", "me", "other"),)}, "leads to 'other'; the arms are stable,"),
        ({"matches": (Match("x who", "me", "stable"),)}, "'x who' is no header's name"),
        ({"mirrors": (Mirror("candidate", 0),)}, "mirror to 'candidate' gets 0 %"),
        ({"salt": "x" * 65}, "a salt has at most 64"),
    ],
)
def test_what_cannot_be_is_named(database: Database, change: Any, says: str) -> None:
    with pytest.raises((Invalid, NotFound), match=says):
        _set(database, replace(SPEC, **change))


def test_an_arm_never_leads_to_a_route(database: Database) -> None:
    _set(database, SPEC)
    loop = RouteSpec((DesiredArm("stable", "numbers", 1, "", 10_000),))
    with pytest.raises(Invalid, match="'stable' leads to the route 'numbers'"):
        _set(database, loop)


def test_the_kill_switch_is_turned_on_and_released_and_the_weights_stay(database: Database) -> None:
    _set(database, SPEC)
    killed = _change(database, routes.kill)
    assert (killed.only, killed.spec.arms) == ("stable", (STABLE, CANDIDATE))
    assert _change(database, routes.kill, "candidate").only == "candidate"
    with pytest.raises(Invalid, match="no arm 'x'; it has stable, candidate"):
        _change(database, routes.kill, "x")
    with pytest.raises(Conflict, match="sends all to 'candidate'"):
        _set(database, RouteSpec((replace(STABLE, weight=10_000),)))
    assert _change(database, routes.unkill).only == ""
    kinds = [kind for kind, subject in told(database) if subject == "route:numbers"]
    assert kinds == ["route.created", "route.killed", "route.killed", "route.unkilled"]


def test_weights_are_moved_and_the_stable_arm_gets_what_is_left(database: Database) -> None:
    _set(database, SPEC)
    moved = _change(database, routes.set_weights, {"candidate": 2_500})
    assert [arm.weight for arm in moved.spec.arms] == [7_500, 2_500]
    with pytest.raises(Invalid, match=r"'stable' is no arm .* there are candidate beside"):
        _change(database, routes.set_weights, {"stable": 10_000})
    with pytest.raises(Invalid, match="stable -10, candidate 110"):
        _change(database, routes.set_weights, {"candidate": 11_000})


def test_what_a_route_leads_to_is_not_taken_away(database: Database) -> None:
    with database.change(ADA) as tx:
        aliases.set_alias(tx, "digits", "best", 2)
    _set(database, replace(SPEC, arms=(STABLE, replace(CANDIDATE, version=0, alias="best"))))
    with (
        pytest.raises(Conflict, match="'digits@best' is the target of the route 'numbers'"),
        database.change(ADA) as tx,
    ):
        aliases.delete_alias(tx, "digits", "best")
    with database.change(ADA) as tx:  # moving it is fine
        aliases.set_alias(tx, "digits", "best", 1)
    _set(database, SPEC)
    with database.change(ADA) as tx:
        aliases.delete_alias(tx, "digits", "best")
    with pytest.raises(Conflict, match="'digits' by the route 'numbers'"):
        deployed(database, 2, sealed("words", {1: "w"}))


def test_gateways_are_told_of_routes_and_keep_their_versions_loaded(database: Database) -> None:
    with database.change(ADA) as tx:
        loads.record(tx, "one", [("words", 4, "READY", "")])
    folder = DesiredArm("folder", "words", 4)
    spec = replace(
        SPEC,
        arms=(STABLE, CANDIDATE, folder),
        matches=(Match("x-tester", "yes", "candidate", True),),
        mirrors=(Mirror("candidate", 500),),
    )
    view = _set(database, spec)
    with database.reading() as session:
        wanted = desired(session, utc_now())
    assert wanted.routes == (routes.desired_route(view),)
    pins = {model.name: model.pins for model in wanted.models}
    assert pins["words"] == (Pin(4, "", "route numbers"),)
    assert [(pin.version, pin.by) for pin in pins["digits"]] == [
        (1, "route numbers"),
        (2, "route numbers"),
    ]
    assert decode_state(encode_state(wanted)) == wanted


def test_routes_are_listed_by_name(database: Database) -> None:
    for name in ("b", "a"):
        _set(database, SPEC, name=name)
    with database.reading() as session:
        assert [one.name for one in routes.list_routes(session).items] == ["a", "b"]
    with pytest.raises(Invalid, match="'a/b' cannot name a route"):
        _set(database, SPEC, name="a/b")


ROLLOUT = "r1"


def _rolling(database: Database, phase: Phase = Phase.STEP) -> None:
    with database.change(ADA) as tx:
        tx.session.add(
            Rollout(
                id=ROLLOUT,
                name="digits",
                model="digits",
                stable=1,
                candidate=2,
                plan={},
                state={},
                phase=phase,
                step=0,
                weight=0,
                mirror=0,
                reason="",
                salt="pepper",
                by="ada",
                fence=0,
                revision=1,
                created_at=tx.now,
                updated_at=tx.now,
            )
        )
        tx.changed("rollout.start", f"rollout:{ROLLOUT}", None, {})


def _weigh(database: Database, **wanted: Any) -> routes.RouteView | None:
    usual = {"model": "digits", "stable": 1, "candidate": 2, "weight": 0, "mirror": 0}
    with database.change(ADA) as tx:
        weights = WeightRequest(**{**usual, "salt": "pepper", **wanted})
        RolloutRoutes().set_weights(tx, "digits", weights)
    with database.reading() as session:
        return routes.find_route(session, "digits")


def test_a_rollout_makes_a_route_moves_its_weights_and_lets_go_of_it(database: Database) -> None:
    _rolling(database)
    made = _weigh(database, weight=100, mirror=500)
    assert made is not None
    assert (made.rollout, made.spec.salt) == (ROLLOUT, "pepper")
    assert made.spec.arms == (STABLE, CANDIDATE)
    assert made.spec.mirrors == (Mirror("candidate", 500),)
    with pytest.raises(Conflict, match="rollout r1 moves the arms of the route 'digits'"):
        _set(database, SPEC, name="digits")
    done = _weigh(database, stable=2, candidate=None)
    assert done is not None
    assert (done.rollout, done.spec.arms) == ("", (DesiredArm("stable", "digits", 2, "", 10_000),))
    kinds = [kind for kind, subject in told(database) if subject == "route:digits"]
    assert kinds == ["route.created", "route.changed"]


def test_a_rollout_keeps_the_unit_and_the_rules_of_a_route_there_is(database: Database) -> None:
    rule = Match("x-tester", "yes", "candidate")
    stable = replace(STABLE, weight=10_000)
    _set(database, RouteSpec((stable,), "header:x-user", "old"), name="digits")
    _rolling(database)
    _weigh(database)
    with database.change(ADA) as tx:
        view = routes.get_route(tx.session, "digits")
        routes.set_route(tx, "digits", replace(view.spec, matches=(rule,)))
    moved = _weigh(database, weight=2_500)
    assert moved is not None
    assert (moved.spec.unit, moved.spec.matches) == ("header:x-user", (rule,))
    done = _weigh(database, candidate=None)
    assert done is not None
    assert done.spec.matches == ()


def test_a_rollout_does_not_take_over_a_route_with_other_arms(database: Database) -> None:
    arms = (STABLE, replace(CANDIDATE, name="other"))
    _set(database, replace(SPEC, arms=arms), name="digits")
    _rolling(database)
    with pytest.raises(Conflict, match="the route 'digits' has the arms stable, other"):
        _weigh(database)


def test_a_rollout_does_not_end_under_a_kill_switch_that_is_on(database: Database) -> None:
    _rolling(database)
    _weigh(database, weight=10_000)
    with database.change(ADA) as tx:
        routes.kill(tx, "digits")
    with pytest.raises(Conflict, match="kill switch of 'digits' sends all to 'stable'"):
        _weigh(database, stable=2, candidate=None)
    back = _weigh(database, candidate=None)
    assert back is not None
    assert back.only == "stable"


def test_the_first_version_of_a_name_has_all_its_traffic(database: Database) -> None:
    _rolling(database)
    made = _weigh(database, stable=None)
    assert made is not None
    assert made.spec.arms == (DesiredArm("candidate", "digits", 2, "", 10_000),)
    assert _weigh(database, stable=None, candidate=None) is None


def test_a_route_whose_rollout_has_ended_may_be_changed(database: Database) -> None:
    _rolling(database, Phase.DEGRADED)
    _weigh(database)
    assert _set(database, SPEC, name="digits").rollout == ""
