"""What was seen of a rollout is kept with it, from its first second to after its end."""

from datetime import timedelta

import pytest
from sqlalchemy import select

from control.clock import utc_now
from control.rollout_tables import Rollout, RolloutMomentRow
from control.rollouts import evidence, queries, service
from control.rollouts.evidence import (
    EVERY_S,
    MOST_SHOWN,
    evidence_of,
    forget_moments,
    note,
)
from control.rollouts.moves import RolloutDecision
from control.rollouts.state import Phase, RolloutState
from control.sql.database import SYSTEM, Database
from support.control import ADA
from support.control_rollout import FAST, ROUTES, alive, begun, report


def ticked(database: Database, rollout: str) -> str:
    with database.change(SYSTEM) as tx:
        return service.tick(tx, ROUTES, rollout).view.phase


@pytest.fixture
def failed(database: Database) -> str:
    """A rollout whose candidate failed in its first step; its id."""
    alive(database, "srv-1", "digits", 1, 2)
    rollout = begun(database, plan=FAST.without_mirror()).id
    for _ in range(3):
        report(database, rollout, 100)
        ticked(database, rollout)
    report(database, rollout, 5_000, 2_500)
    for _ in range(3):
        ticked(database, rollout)
    return rollout


def test_each_move_is_kept_with_what_was_seen_then(database: Database, failed: str) -> None:
    with database.reading() as session:
        moments = evidence_of(session, failed).moments
    moves = [one.move for one in moments if one.move]
    assert moves[:2] == ["start", "prewarm"]
    assert moves[-2:] == ["abort", "degrade"]
    abort = next(one for one in moments if one.move == "abort")
    assert abort.phase is Phase.STEP or abort.phase is Phase.PROMOTING
    assert abort.arms.candidate.errors == 2_500
    assert "fail" in [one.outcome for one in abort.verdicts]


def test_an_ended_rollout_stands_as_it_did_when_it_was_decided(
    database: Database, failed: str
) -> None:
    with database.reading() as session:
        before = queries.standing(session, failed, utc_now())
    report(database, failed, 90_000)
    with database.reading() as session:
        after = queries.standing(session, failed, utc_now())
        moments = evidence_of(session, failed).moments
    abort = next(one for one in moments if one.move == "abort")
    assert after == before
    assert (after.verdicts, after.arms, after.decided_at) == (
        abort.verdicts,
        abort.arms,
        abort.at,
    )


def noted(
    database: Database, rollout: str, *, seconds: float, retried: float | None = None
) -> None:
    """A look at the rollout so long after it was begun, and so long after it was `retried`."""
    with database.change(SYSTEM) as tx:
        row = tx.session.get_one(Rollout, rollout)
        row.created_at = tx.now - timedelta(seconds=seconds)
        began_at = 0.0 if retried is None else tx.now.timestamp() - retried
        state = RolloutState(FAST, phase=Phase.STEP, began_at=began_at)
        note(tx, row, state, RolloutDecision(state, None, "waits"))


def test_between_moves_a_moment_is_kept_only_when_the_last_one_is_old(database: Database) -> None:
    rollout = begun(database).id
    for _ in range(5):
        noted(database, rollout, seconds=1)
    with database.reading() as session:
        assert len(evidence_of(session, rollout).moments) == 1
    age_all(database, EVERY_S + 1)
    noted(database, rollout, seconds=1)
    noted(database, rollout, seconds=1)
    with database.reading() as session:
        assert len(evidence_of(session, rollout).moments) == 2


def age_all(database: Database, seconds: float) -> None:
    """Every moment was kept so much earlier."""
    with database.change(SYSTEM) as tx:
        for row in tx.session.query(RolloutMomentRow):
            row.at = row.at - timedelta(seconds=seconds)


def test_the_older_a_rollout_is_the_less_often_a_moment_is_kept(database: Database) -> None:
    rollout = begun(database).id
    age_all(database, 30)
    noted(database, rollout, seconds=86_400)
    with database.reading() as session:
        assert len(evidence_of(session, rollout).moments) == 1
    noted(database, rollout, seconds=2_000)
    with database.reading() as session:
        assert len(evidence_of(session, rollout).moments) == 2


def test_a_retried_rollout_is_as_young_as_its_retry(database: Database) -> None:
    rollout = begun(database).id
    age_all(database, EVERY_S + 1)
    noted(database, rollout, seconds=86_400, retried=1)
    with database.reading() as session:
        assert len(evidence_of(session, rollout).moments) == 2


def test_a_start_and_a_retry_say_when_they_were(database: Database, failed: str) -> None:
    with database.reading() as session:
        row = session.get_one(Rollout, failed)
        began_at = row.state["began_at"]
        assert began_at == pytest.approx(row.created_at.timestamp(), abs=1)
    with database.change(ADA) as tx:
        service.command(tx, ROUTES, failed, "retry")
    with database.reading() as session:
        assert session.get_one(Rollout, failed).state["began_at"] > began_at


def test_of_too_many_moments_the_oldest_go_and_the_moves_stay(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evidence, "MOST_MOMENTS", 5)
    rollout = begun(database).id
    for _ in range(9):
        age_all(database, EVERY_S)
        noted(database, rollout, seconds=1)
    with database.reading() as session:
        numbers = session.scalars(select(RolloutMomentRow.number)).all()
        assert evidence_of(session, rollout).moments[0].move == "start"
    assert sorted(numbers) == [0, 5, 6, 7, 8, 9]


def test_no_more_moments_are_shown_than_a_chart_can_bear(database: Database) -> None:
    rollout = begun(database).id
    for _ in range(MOST_SHOWN + 5):
        age_all(database, EVERY_S)
        noted(database, rollout, seconds=1)
    with database.reading() as session:
        moments = evidence_of(session, rollout).moments
    assert len(moments) <= MOST_SHOWN + 1
    assert moments[0].move == "start"


def test_moments_are_forgotten_with_the_counts(database: Database, failed: str) -> None:
    with database.change(ADA) as tx:
        forget_moments(tx)
    with database.reading() as session:
        assert evidence_of(session, failed).moments
    with database.change(ADA) as tx:
        tx.session.get_one(Rollout, failed).finished_at = tx.now - timedelta(days=31)
        tx.session.flush()
        forget_moments(tx)
    with database.reading() as session:
        assert not evidence_of(session, failed).moments
