"""Rollouts as rows: state, weights, event and audit move together or not at all."""

import json
from dataclasses import replace

import pytest

from control import loads
from control.clock import utc_now
from control.errors import Conflict, Invalid, LostLease, NotFound, Stale
from control.rollout_tables import Rollout
from control.rollouts import queries, service
from control.rollouts.commands import RolloutCommand
from control.rollouts.plan import BUCKETS, Mode
from control.rollouts.service import CandidateRequest, WeightRequest
from control.rollouts.state import Phase
from control.sql import leases
from control.sql.database import SYSTEM, Database, Fence
from control.tables import Audit, Event
from control.views import to_json
from support.control import ADA, desired_revision, rows, told
from support.control_rollout import (
    FAST,
    NAME,
    ROUTES,
    alive,
    begun,
    report,
    taken_over,
    ticked,
    told_to,
    walked,
    weights,
)


def test_a_whole_rollout_moves_weights_and_says_what_it_did(database: Database) -> None:
    alive(database, "srv-1", NAME, 1, 2)
    rollout = begun(database)
    seen = []
    for number in range(1, 12):
        report(database, rollout.id, number)
        if ticked(database, rollout.id).moved:
            found = weights(database)
            assert found is not None
            seen.append((found.stable, found.candidate, found.weight, found.mirror))
    assert seen == [
        (1, 2, 0, 0),
        (1, 2, 0, 500),
        (1, 2, 100, 0),
        (1, 2, 5_000, 0),
        (1, 2, BUCKETS, 0),
        (2, None, 0, 0),
    ]
    moves = ["start", "prewarm", "mirror", "step", "step", "promote", "healthy"]
    kinds = [(kind, subject) for kind, subject in told(database) if kind.startswith("rollout.")]
    assert kinds == [(f"rollout.{move}", f"rollout:{rollout.id}") for move in moves]


def test_each_move_is_told_in_words_with_the_numbers_it_came_from(database: Database) -> None:
    alive(database, "srv-1", NAME, 1, 2)
    rollout = walked(database, begun(database).id, "step")
    report(database, rollout.id, 5_000, errors=2_600)
    ticked(database, rollout.id)
    event, audit = rows(database, Event)[-1], rows(database, Audit)[-1]
    assert event.kind == audit.action == "rollout.abort"
    assert event.data["name"] == NAME
    assert event.data["words"].startswith("rolled back: 2600 of its last 499")
    failed = [one["guardrail"] for one in event.data["verdicts"] if one["outcome"] == "fail"]
    assert failed == ["breaker", "errors"]
    assert (audit.before["phase"], audit.before["weight"]) == ("step", 1.0)
    assert (audit.after["phase"], audit.after["weight"]) == ("aborting", 0.0)


def test_a_tick_without_a_move_leaves_no_event_and_no_revision(database: Database) -> None:
    alive(database, "srv-1", NAME, 1, 2)
    plan = replace(FAST, mirror=replace(FAST.steps[0], weight=500, hold_s=3_600))
    rollout = walked(database, begun(database, plan=plan).id, "mirror")
    events, desired = len(told(database)), desired_revision(database)
    for number in range(5):
        report(database, rollout.id, 100 + number)
        assert not ticked(database, rollout.id).moved
    assert (len(told(database)), desired_revision(database)) == (events, desired)
    assert rows(database, Rollout)[0].revision == rollout.revision


def test_gateways_are_told_of_every_move(database: Database) -> None:
    before = desired_revision(database)
    rollout = begun(database)
    ticked(database, rollout.id)
    assert desired_revision(database) == before + 2


def test_a_candidate_that_no_server_has_waits(database: Database) -> None:
    alive(database, "srv-1", NAME, 1)
    rollout = begun(database)
    ticked(database, rollout.id)
    assert not ticked(database, rollout.id).moved
    with database.reading() as session:
        standing = queries.standing(session, rollout.id, utc_now())
    assert standing.words == "it is not ready on srv-1"


def test_a_candidate_that_failed_to_load_is_rolled_back_with_the_reason(database: Database) -> None:
    alive(database, "srv-1", NAME, 1)
    rollout = begun(database)
    ticked(database, rollout.id)
    with database.change(SYSTEM) as tx:
        loads.record(tx, "srv-1", [(NAME, 1, "READY", ""), (NAME, 2, "FAILED", "bad weights")])
    assert ticked(database, rollout.id).view.reason == "rolled back: it failed: srv-1: bad weights"


def test_a_live_server_that_tells_no_counts_holds_the_rollout(database: Database) -> None:
    alive(database, "srv-1", NAME, 1, 2)
    alive(database, "srv-2", NAME, 1, 2)
    rollout = begun(database)
    for number in range(1, 5):
        report(database, rollout.id, number)
        phase = ticked(database, rollout.id).view.phase
    assert phase is Phase.PREWARM
    report(database, rollout.id, 1, server="srv-2")
    assert ticked(database, rollout.id).view.phase is Phase.MIRROR


def test_counts_of_all_servers_and_of_processes_that_are_gone_add_up(database: Database) -> None:
    alive(database, "srv-1", NAME, 1, 2)
    rollout = walked(database, begun(database).id, "mirror")
    report(database, rollout.id, 10, process="p2")
    report(database, rollout.id, 5, errors=1, server="srv-9")
    with database.reading() as session:
        found = queries.standing(session, rollout.id, utc_now())
    assert found.arms.stable.requests == 15
    assert found.arms.mirrored.errors == 1
    assert found.arms.mirrored.p50_s == pytest.approx(0.02, rel=0.05)


def test_a_newer_candidate_supersedes_and_the_stable_version_stays(database: Database) -> None:
    alive(database, "srv-1", NAME, 1, 2, 3)
    old = walked(database, begun(database).id, "promoting")
    new = begun(database, candidate=3, stable=2)
    assert (new.stable, new.candidate, new.weight, new.step) == (1, 3, 0.0, 0)
    with database.reading() as session:
        assert queries.get_rollout(session, old.id).phase is Phase.SUPERSEDED
    assert weights(database) == WeightRequest(NAME, 1, 3, 0, 0, new.salt)
    assert new.salt != old.salt


def test_the_same_wish_again_is_the_rollout_that_is_under_way(database: Database) -> None:
    first = begun(database)
    assert begun(database).id == first.id
    assert len(rows(database, Rollout)) == 1


def test_what_is_stable_already_is_not_rolled_out(database: Database) -> None:
    with pytest.raises(Conflict, match="'digits' is served by version 1 already"):
        begun(database, candidate=1, stable=1)
    assert rows(database, Rollout) == []


def test_a_wish_for_the_stable_version_leaves_the_rollout_under_way_alone(
    database: Database,
) -> None:
    rollout = begun(database)
    with pytest.raises(Conflict, match="served by version 1 already; abort the rollout of 2"):
        begun(database, candidate=1)
    with (
        pytest.raises(Conflict, match="a rollout of the model 'digits' is under way"),
        database.change(ADA) as tx,
    ):
        service.start(tx, ROUTES, CandidateRequest(NAME, "letters", 1, 1), FAST)
    with database.reading() as session:
        assert [one.id for one in queries.active(session)] == [rollout.id]


def test_the_first_version_of_a_name_has_everything_at_once(database: Database) -> None:
    view = taken_over(database, 1, None)
    assert weights(database) == WeightRequest(NAME, 1, None, 0, 0, view.salt)
    said = [event.data for event in rows(database, Event) if event.kind == "rollout.promote"]
    assert said[-1]["words"] == ("all traffic to the candidate at once: it is the first version")


@pytest.mark.parametrize(("window", "steps"), [(3, False), (1, True), (0, True)])
def test_a_recent_version_takes_over_again_without_steps(
    database: Database, window: int, steps: bool
) -> None:
    for candidate, stable in ((1, None), (2, 1), (3, 2)):
        taken_over(database, candidate, stable)
    alive(database, "srv-1", NAME, 1, 3)
    rollout = begun(database, 1, 3, replace(FAST, rollback_window=window))
    walked(database, rollout.id, "healthy")
    moved = [k for k, subject in told(database) if subject == f"rollout:{rollout.id}"]
    assert ("rollout.step" in moved) == steps


def test_versions_that_a_rollout_may_need_are_kept_loaded(database: Database) -> None:
    for candidate, stable in ((1, None), (2, 1), (3, 2), (4, 3), (5, 4)):
        taken_over(database, candidate, stable)
    rollout = begun(database, candidate=6, stable=5)
    with database.reading() as session:
        kept = {(one.version, one.by) for one in queries.kept(session)}
    window = "rollback window of 'digits'"
    under_way = f"rollout {rollout.id}"
    assert kept == {(6, under_way), (5, under_way), (4, window), (3, window), (2, window)}


@pytest.mark.parametrize(
    "command", [RolloutCommand.PROMOTE, RolloutCommand.PAUSE, RolloutCommand.ABORT]
)
def test_a_command_is_done_at_once_and_says_by_whom(
    database: Database, command: RolloutCommand
) -> None:
    alive(database, "srv-1", NAME, 1, 2)
    rollout = walked(database, begun(database).id, "step")
    view = told_to(database, rollout.id, command)
    assert "user:ada" in view.reason
    assert rows(database, Audit)[-1].actor == "user:ada"
    assert view.revision == rollout.revision + 1


def test_a_command_may_expect_a_revision(database: Database) -> None:
    rollout = begun(database)
    ticked(database, rollout.id)
    with database.change(ADA) as tx, pytest.raises(Stale):
        service.command(tx, ROUTES, rollout.id, "abort", rollout.revision)


def test_unknown_rollouts_and_commands_are_refused_by_name(database: Database) -> None:
    rollout = begun(database)
    with database.change(ADA) as tx:
        with pytest.raises(
            Invalid, match=r"'explode' is no command; commands are promote, promote_full"
        ):
            service.command(tx, ROUTES, rollout.id, "explode")
        with pytest.raises(NotFound, match="there is no rollout 'nope'"):
            service.command(tx, ROUTES, "nope", "abort")
        with pytest.raises(NotFound, match="there is no rollout"):
            service.tick(tx, ROUTES, "no\0pe")


def test_what_was_rolled_back_is_not_retried_after_a_newer_rollout(database: Database) -> None:
    alive(database, "srv-1", NAME, 1, 2, 3)
    old = begun(database)
    told_to(database, old.id, RolloutCommand.ABORT)
    ticked(database, old.id)
    begun(database, candidate=3)
    with pytest.raises(Conflict, match="version 3 of 'digits' has been rolled out since"):
        told_to(database, old.id, RolloutCommand.RETRY)


def test_a_retry_begins_again(database: Database) -> None:
    alive(database, "srv-1", NAME, 1, 2)
    rollout = walked(database, begun(database).id, "step")
    report(database, rollout.id, 1_000, errors=900)
    ticked(database, rollout.id)
    assert ticked(database, rollout.id).view.finished_at is not None
    again = told_to(database, rollout.id, RolloutCommand.RETRY)
    assert (again.phase, again.finished_at, again.step) == (Phase.PENDING, None, 0)
    report(database, rollout.id, 1_000, errors=900)
    for number in range(1, 12):
        report(database, rollout.id, 1_000 + number, errors=900)
        ticked(database, rollout.id)
    with database.reading() as session:
        assert queries.get_rollout(session, rollout.id).phase is Phase.HEALTHY


def test_who_lost_the_lease_moves_nothing(database: Database) -> None:
    rollout = begun(database)
    alive(database, "srv-1", NAME, 1, 2)
    old = leases.take(database, "rollouts", "one", 0.0)
    new = leases.take(database, "rollouts", "two", 30.0)
    assert old is not None
    assert new is not None
    with pytest.raises(LostLease), database.change(SYSTEM, old) as tx:
        service.tick(tx, ROUTES, rollout.id)
    with database.change(SYSTEM, new) as tx:
        assert service.tick(tx, ROUTES, rollout.id).moved
    report(database, rollout.id, 1)
    with (
        pytest.raises(LostLease, match="moved by a newer holder than 1"),
        database.change(SYSTEM, Fence("other", 1)) as tx,
    ):
        service.tick(tx, ROUTES, rollout.id)


def test_a_route_that_cannot_be_written_leaves_the_rollout_where_it_was(
    database: Database,
) -> None:
    class Refusing:
        def set_weights(self, tx: object, name: str, weights: WeightRequest) -> None:
            raise Conflict(f"the route of '{name}' is frozen")

    alive(database, "srv-1", NAME, 1, 2)
    rollout = walked(database, begun(database).id, "mirror")
    report(database, rollout.id, 50)
    with pytest.raises(Conflict, match="frozen"), database.change(SYSTEM) as tx:
        service.tick(tx, Refusing(), rollout.id)
    with database.reading() as session:
        assert queries.get_rollout(session, rollout.id).phase is Phase.MIRROR


def test_lists_are_paged_and_filtered(database: Database) -> None:
    first = taken_over(database, 1, None)
    second = begun(database, 2, 1)
    with database.reading() as session:
        page = queries.list_rollouts(session, name=NAME, limit=1)
        assert [one.id for one in page.items] == [second.id]
        rest = queries.list_rollouts(session, name=NAME, cursor=page.next)
        assert [one.id for one in rest.items] == [first.id]
        healthy = queries.list_rollouts(session, phase="healthy").items
        assert [one.id for one in healthy] == [first.id]
        assert [one.id for one in queries.active(session)] == [second.id]
        with pytest.raises(Invalid, match="'lost' is no phase; pending, prewarm"):
            queries.list_rollouts(session, phase="lost")


def test_a_view_is_plain_json(database: Database) -> None:
    alive(database, "srv-1", NAME, 1, 2)
    said = json.loads(to_json(walked(database, begun(database).id, "step")))
    assert said["phase"] == "step"
    assert (said["step"], said["steps"], said["weight"]) == (1, 2, 1.0)
    assert said["until"].endswith("Z")
    assert said["plan"]["mode"] == "progressive"


def test_an_immediate_rollout_needs_two_looks_once_it_is_ready(database: Database) -> None:
    alive(database, "srv-1", NAME, 1, 2)
    with database.change(ADA) as tx:
        plan = replace(FAST, mode=Mode.IMMEDIATE)
        rollout = service.start(tx, ROUTES, CandidateRequest(NAME, NAME, 2, 1), plan)
    moved = [ticked(database, rollout.id).view.phase for _ in range(3)]
    assert moved == [Phase.PREWARM, Phase.PROMOTING, Phase.HEALTHY]
