"""What is in force while targets of what is desired are not ready."""

from collections.abc import Mapping

from control.desired import (
    DesiredArm,
    DesiredExperiment,
    DesiredModel,
    DesiredRoute,
    DesiredState,
    Match,
    Mirror,
    Pin,
)
from server.routing.effective import (
    NOT_LOADED,
    EffectiveRoutes,
    TargetState,
    effective,
    experiments_in_force,
    of_desired,
    with_pins,
)
from support.routing import route

READY = TargetState(True, False, "is ready")
LOADING = TargetState(False, True, "is loading")
FAILED = TargetState(False, False, "failed: no such file")
MISSING = TargetState(False, False, NOT_LOADED)


def states(**by_name: TargetState):  # type: ignore[no-untyped-def]
    """`states(digits_1=READY)`; all others are missing."""
    return lambda model, version: by_name.get(f"{model}_{version}", MISSING)


def alias(version: int) -> DesiredState:
    pin = Pin(version, f"s{version}", "alias champion")
    return DesiredState(
        version,
        models=(DesiredModel("m", "s9", pins=(pin,)),),
        aliases={"m": {"champion": version}},
    )


def routed(*routes: DesiredRoute) -> DesiredState:
    return DesiredState(2, routes=routes)


def weights(now: EffectiveRoutes) -> Mapping[str, tuple[int, int]]:
    """Arm → version and buckets, of the one route."""
    (one,) = now.routes
    return {arm.name: (arm.version, arm.weight) for arm in one.arms}


def test_an_alias_moves_when_its_version_is_ready() -> None:
    before = of_desired(alias(1))
    waiting = effective(alias(2), before, states(m_1=READY, m_2=LOADING))
    assert waiting.aliases == {"m": {"champion": 1}}
    (pending,) = waiting.pending
    assert pending.subject == "alias m@champion"
    assert pending.reason == "not in force yet, kept at version 1: version 2 is loading"
    assert not pending.failed

    done = effective(alias(2), waiting, states(m_1=READY, m_2=READY))
    assert done.aliases == {"m": {"champion": 2}}
    assert done.pending == ()


def test_an_alias_stays_when_its_version_failed_and_says_why() -> None:
    now = effective(alias(2), of_desired(alias(1)), states(m_1=READY, m_2=FAILED))
    assert now.aliases == {"m": {"champion": 1}}
    assert now.pending[0].reason == "kept at version 1: version 2 failed: no such file"
    assert now.pending[0].failed


def test_an_alias_does_not_stay_where_nobody_answers() -> None:
    now = effective(alias(2), of_desired(alias(1)), states(m_1=FAILED, m_2=LOADING))
    assert now.aliases == {"m": {"champion": 2}}
    coming = effective(alias(2), of_desired(alias(1)), states(m_1=LOADING, m_2=LOADING))
    assert coming.aliases == {"m": {"champion": 1}}, "a worker that is restarted is back soon"


def test_of_two_changes_in_a_row_the_last_one_wins() -> None:
    first = effective(alias(2), of_desired(alias(1)), states(m_1=READY, m_2=LOADING))
    second = effective(alias(3), first, states(m_1=READY, m_2=READY, m_3=LOADING))
    assert second.aliases == {"m": {"champion": 1}}
    assert effective(alias(3), second, states(m_1=READY, m_3=READY)).aliases["m"]["champion"] == 3
    back = effective(alias(1), first, states(m_1=READY, m_2=LOADING))
    assert (back.aliases, back.pending) == ({"m": {"champion": 1}}, ())


def test_what_is_in_force_is_kept_loaded_until_it_is_not() -> None:
    waiting = effective(alias(2), of_desired(alias(1)), states(m_1=READY, m_2=LOADING))
    (model,) = with_pins(alias(2), waiting).models
    assert {(pin.version, pin.snapshot) for pin in model.pins} == {(1, "s1"), (2, "s2")}
    gone = DesiredState(3, aliases=alias(2).aliases)  # undeployed meanwhile
    (model,) = with_pins(gone, effective(gone, waiting, states(m_1=READY))).models
    assert [(pin.version, pin.snapshot) for pin in model.pins] == [(1, "s1")]
    done = effective(alias(2), waiting, states(m_2=READY))
    assert with_pins(alias(2), done) == alias(2)


def test_an_arm_that_is_not_ready_is_left_out_and_its_share_stays_with_the_stable_arm() -> None:
    before = of_desired(routed(route(("stable", 1, 100))))
    wanted = route(
        ("stable", 1, 50),
        ("candidate", 2, 50),
        matches=(Match("x", "y", "candidate"),),
        mirrors=(Mirror("candidate", 10_000),),
    )
    now = effective(routed(wanted), before, states(digits_1=READY, digits_2=LOADING))
    assert list(weights(now)) == ["stable"]
    assert now.pending[0].subject == "route numbers"
    assert "'digits' version 2 is loading" in now.pending[0].reason
    done = effective(routed(wanted), now, states(digits_1=READY, digits_2=READY))
    assert done.routes == (wanted,)
    assert done.pending == ()


def test_an_arm_that_moves_to_another_version_keeps_the_old_one_and_the_new_weight() -> None:
    before = of_desired(routed(route(("stable", 1, 90), ("candidate", 2, 10))))
    wanted = routed(route(("stable", 1, 60), ("candidate", 3, 40)))
    now = effective(wanted, before, states(digits_1=READY, digits_2=READY, digits_3=LOADING))
    assert weights(now) == {"stable": (1, 6000), "candidate": (2, 4000)}


def test_a_route_that_is_given_other_arms_keeps_the_old_ones_until_one_of_the_new_is_ready() -> (
    None
):
    before = of_desired(routed(route(("old", 1, 100))))
    wanted = routed(route(("first", 2, 50), ("second", 3, 50)))
    assert weights(effective(wanted, before, states(digits_1=READY))) == {"old": (1, 10_000)}
    one = effective(wanted, before, states(digits_1=READY, digits_3=READY))
    assert weights(one) == {"second": (3, 5000)}
    assert effective(wanted, before, states()).routes == wanted.routes, "nobody answers anyway"


def test_an_arm_without_weight_is_not_waited_for_until_it_gets_some() -> None:
    wanted = route(("stable", 1, 100), ("candidate", 2, 0))
    now = effective(routed(wanted), of_desired(routed()), states(digits_1=READY))
    assert (now.routes, now.pending) == ((wanted,), ())
    more = routed(route(("stable", 1, 50), ("candidate", 2, 50)))
    assert list(weights(effective(more, now, states(digits_1=READY)))) == ["stable"]


def test_an_abort_waits_for_nothing() -> None:
    before = of_desired(routed(route(("stable", 1, 50), ("candidate", 2, 50))))
    ready = states(digits_1=READY, digits_2=READY, digits_3=LOADING)
    aborted = route(("stable", 1, 100), ("candidate", 2, 0))
    assert effective(routed(aborted), before, ready).routes == (aborted,)
    replaced = route(("stable", 1, 50), ("next", 3, 50))
    assert list(weights(effective(routed(replaced), before, ready))) == ["stable"]


def test_the_kill_switch_waits_for_nothing_but_its_own_arm() -> None:
    before = of_desired(routed(route(("stable", 1, 50), ("candidate", 2, 50))))
    killed = route(("stable", 1, 50), ("candidate", 3, 50), only="stable")
    assert effective(routed(killed), before, states(digits_1=READY)).routes == (killed,)
    other = route(("stable", 1, 50), ("candidate", 3, 50), only="candidate")
    now = effective(routed(other), before, states(digits_1=READY, digits_2=READY))
    (one,) = now.routes
    assert one.only == "candidate"
    assert weights(now)["candidate"] == (2, 5000)


def test_the_kill_switch_is_in_force_at_once_towards_an_arm_without_weight() -> None:
    before = of_desired(routed(route(("stable", 1, 0), ("candidate", 2, 100))))
    killed = route(("stable", 1, 0), ("candidate", 2, 100), only="stable")
    now = effective(routed(killed), before, states(digits_1=READY, digits_2=READY))
    assert (now.routes, now.pending) == ((killed,), ())


def test_the_kill_switch_says_why_it_is_not_in_force_and_is_as_soon_as_its_arm_is_ready() -> None:
    before = of_desired(routed(route(("stable", 1, 0), ("candidate", 2, 100))))
    killed = route(("stable", 1, 0), ("candidate", 2, 100), only="stable")
    waiting = effective(routed(killed), before, states(digits_1=LOADING, digits_2=READY))
    assert waiting.routes == before.routes
    assert waiting.pending == (
        (
            "route numbers",
            "the kill switch is not in force yet, what answered before keeps answering: "
            "its arm 'stable' cannot answer: 'digits' version 1 is loading",
            False,
        ),
    )
    failed = effective(routed(killed), before, states(digits_1=FAILED, digits_2=READY))
    assert failed.pending[0].reason.startswith("the kill switch is not in force, what answered")
    assert failed.pending[0].failed
    done = effective(routed(killed), waiting, states(digits_1=READY, digits_2=READY))
    assert (done.routes, done.pending) == ((killed,), ())


def test_what_is_in_force_stays_whatever_becomes_of_its_arms() -> None:
    wanted = routed(route(("stable", 1, 50), ("candidate", 2, 50)))
    now = effective(wanted, of_desired(wanted), states(digits_1=READY, digits_2=FAILED))
    assert (now.routes, now.pending) == (wanted.routes, ())


def test_an_arm_of_an_alias_follows_the_alias_in_force() -> None:
    arms = (DesiredArm("stable", "m", 0, "champion", 10_000),)
    old = DesiredState(1, aliases={"m": {"champion": 1}}, routes=(DesiredRoute("r", arms),))
    new = DesiredState(2, aliases={"m": {"champion": 2}}, routes=(DesiredRoute("r", arms),))
    now = effective(new, of_desired(old), states(m_1=READY, m_2=LOADING))
    assert (now.aliases["m"]["champion"], now.routes) == (1, new.routes)


def test_a_new_route_does_not_take_its_name_from_a_model_before_it_can_answer() -> None:
    wanted = routed(route(("stable", 2, 100), name="digits"))
    waiting = effective(wanted, EffectiveRoutes(), states(digits_0=READY, digits_2=LOADING))
    assert waiting.routes == ()
    assert waiting.pending
    assert effective(wanted, EffectiveRoutes(), states(digits_2=LOADING)).routes == wanted.routes


def test_an_experiment_counts_nobody_while_its_arms_are_not_what_they_are_called() -> None:
    before = of_desired(routed(route(("stable", 1, 100))))
    wanted = DesiredState(
        2,
        routes=(route(("stable", 1, 50), ("candidate", 2, 50)),),
        experiments=(DesiredExperiment("e", "numbers", ("stable", "candidate")),),
    )
    waiting = effective(wanted, before, states(digits_1=READY, digits_2=LOADING))
    assert experiments_in_force(wanted, waiting).experiments == ()
    done = effective(wanted, waiting, states(digits_1=READY, digits_2=READY))
    assert experiments_in_force(wanted, done).experiments == wanted.experiments
