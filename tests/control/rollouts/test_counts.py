"""What servers have counted: kept per process, merged on read, missed when it is late."""

from dataclasses import replace
from datetime import timedelta

import pytest

from control.clock import utc_now
from control.errors import NotFound
from control.rollout_tables import RolloutWindow
from control.rollouts import counts, facts, service
from control.rollouts.arms import (
    ArmTotals,
    OutcomeCounts,
    RateComparison,
    RolloutTotals,
    Stratum,
    compared,
)
from control.rollouts.assignment_counts import AssignmentCount
from control.rollouts.commands import RolloutCommand
from control.rollouts.counts import MIB, GatewayReport
from control.rollouts.queries import find
from control.sql.database import SYSTEM, Database
from support.control import rows
from support.control_rollout import FAST, NAME, ROUTES, alive, begun, report, ticked, told_to
from support.rollout import arm


def test_what_a_process_says_replaces_what_it_said_before(database: Database) -> None:
    rollout = begun(database)
    for answered in (3, 10):
        report(database, rollout.id, answered)
    with database.reading() as session:
        found = counts.read(session, rollout.id, {"srv-1"}, utc_now())
    assert (found.arms.control.counts.requests, found.problem) == (10, "")
    assert found.arms.control.latency.n == 10


@pytest.mark.parametrize(
    ("servers", "later_s", "problem"),
    [
        ({"srv-1"}, 14, ""),
        ({"srv-1"}, 16, "srv-1 sent no counts for 15 s"),
        ({"srv-1", "srv-2", "srv-3"}, 0, "srv-2, srv-3 sent no counts for 15 s"),
        (set(), 0, "no server is alive"),
    ],
)
def test_a_live_server_that_is_silent_is_named(
    database: Database, servers: set[str], later_s: int, problem: str
) -> None:
    rollout = begun(database)
    report(database, rollout.id, 3)
    with database.reading() as session:
        now = utc_now() + timedelta(seconds=later_s)
        found = counts.read(session, rollout.id, servers, now)
    assert found.problem == problem
    assert found.arms.control.counts.requests == 3


def test_facts_of_processes_that_are_gone_count_only_where_they_last(database: Database) -> None:
    """Crashes stay; memory and requests in flight are those of the process that runs."""
    plan = replace(FAST, guardrails=replace(FAST.guardrails, memory_mib=100))
    rollout = begun(database, plan=plan)
    with database.change(SYSTEM) as tx:
        old = GatewayReport(RolloutTotals(arm(1)), crashes=1, resident_bytes=900 * MIB, in_flight=7)
        counts.record(tx, rollout.id, "srv-1", "p1", old)
    with database.change(SYSTEM) as tx:
        new = GatewayReport(RolloutTotals(arm(1)), crashes=2, resident_bytes=50 * MIB, in_flight=1)
        counts.record(tx, rollout.id, "srv-1", "p2", new)
    with database.reading() as session:
        found = counts.read(session, rollout.id, {"srv-1"}, utc_now())
    assert (found.crashes, found.memory_ratio, found.in_flight) == (3, 0.5, 1)


def test_memory_that_nobody_declared_is_held_against_nothing(database: Database) -> None:
    rollout = begun(database)
    with database.change(SYSTEM) as tx:
        counts.record(
            tx, rollout.id, "srv-1", "p1", GatewayReport(RolloutTotals(), resident_bytes=MIB)
        )
    with database.reading() as session:
        assert counts.read(session, rollout.id, {"srv-1"}, utc_now()).memory_ratio is None


def test_units_in_the_wrong_arm_are_a_mismatch_until_the_rollout_is_tried_again(
    database: Database,
) -> None:
    rollout = begun(database)

    def mismatch() -> str:
        with database.reading() as session:
            return counts.read(session, rollout.id, {"srv-1"}, utc_now()).mismatch

    with database.change(SYSTEM) as tx:
        assignments = (AssignmentCount(rollout.salt, 5_000, 1_000, 300),)
        counts.record(
            tx, rollout.id, "srv-1", "p1", GatewayReport(RolloutTotals(), assignments=assignments)
        )
    assert "of 1,000 units 300 met the candidate" in mismatch()
    told_to(database, rollout.id, RolloutCommand.ABORT)
    ticked(database, rollout.id)
    assert told_to(database, rollout.id, RolloutCommand.RETRY).salt != rollout.salt
    assert mismatch() == ""


def test_a_rollout_that_has_ended_need_not_be_told_of_again(database: Database) -> None:
    rollout = begun(database)

    def over() -> bool:
        with database.change(SYSTEM) as tx:
            return counts.record(tx, rollout.id, "srv-1", "p1", GatewayReport(RolloutTotals()))

    assert not over()
    told_to(database, rollout.id, RolloutCommand.ABORT)
    ticked(database, rollout.id)
    assert over()
    told_to(database, rollout.id, RolloutCommand.RETRY)
    assert not over()


def test_counts_for_a_rollout_that_nobody_knows_are_refused(database: Database) -> None:
    with pytest.raises(NotFound, match="there is no rollout 'nope'"):
        report(database, "nope", 1)


def test_without_a_live_server_the_candidate_is_ready_nowhere(database: Database) -> None:
    rollout = begun(database)
    with database.reading() as session:
        seen = facts.seen(session, find(session, rollout.id), utc_now())
    assert seen.candidate.missing == ("any server: none is alive",)
    assert seen.arms is None


def test_what_a_dead_server_says_of_the_candidate_does_not_count(database: Database) -> None:
    alive(database, "srv-1", NAME, 2)
    rollout = begun(database)
    report(database, rollout.id, 1)
    with database.reading() as session:
        row = find(session, rollout.id)
        assert facts.seen(session, row, utc_now()).candidate.missing == ()
        later = utc_now() + timedelta(seconds=60)
        assert facts.seen(session, row, later).candidate.missing != ()


def test_counts_of_ended_rollouts_are_forgotten_in_the_end(database: Database) -> None:
    rollout = begun(database)
    report(database, rollout.id, 1)
    told_to(database, rollout.id, RolloutCommand.ABORT)
    with database.change(SYSTEM) as tx:
        assert counts.forget(tx, keep_days=0) == 0
    alive(database, "srv-1", NAME, 2)
    with database.change(SYSTEM) as tx:
        assert service.tick(tx, ROUTES, rollout.id).view.finished_at is not None
    with database.change(SYSTEM) as tx:
        assert counts.forget(tx, keep_days=1) == 0
        assert counts.forget(tx, keep_days=0) == 1
    assert rows(database, RolloutWindow) == []


def test_an_arm_read_back_is_the_same() -> None:
    packed = RolloutTotals(arm(10, 2), arm(5, not_a_number=1), arm(0)).as_list()
    assert RolloutTotals.from_list(packed).as_list() == packed


def test_counts_that_shrink_are_taken_for_nothing_new() -> None:
    left = arm(3).since(arm(10, 2))
    assert left.counts == OutcomeCounts()
    assert left.latency.n == 0
    assert ArmTotals().since(arm(3)).counts == OutcomeCounts()


def test_in_one_stratum_the_arms_are_compared_as_they_are() -> None:
    stratum = Stratum(OutcomeCounts(1_000, 20), OutcomeCounts(99_000, 500))
    assert compared([stratum], "errors") == RateComparison(20, 1_000, 500, 99_000)


def test_strata_are_compared_at_the_candidates_mix() -> None:
    """A step at 1 % in a bad hour, and one at 50 % in a good one: the arms are alike in both."""
    bad = Stratum(OutcomeCounts(1_000, 100), OutcomeCounts(99_000, 9_900))
    good = Stratum(OutcomeCounts(50_000, 50), OutcomeCounts(50_000, 50))
    found = compared([bad, good], "errors")
    assert found is not None
    assert found.candidate == pytest.approx(150 / 51_000)
    assert found.control == pytest.approx(found.candidate, rel=0.01)
    assert found.n_control <= 149_000


@pytest.mark.parametrize("strata", [[], [Stratum(OutcomeCounts(5), OutcomeCounts())]])
def test_without_both_arms_nothing_is_compared(strata: list[Stratum]) -> None:
    assert compared(strata, "errors") is None
