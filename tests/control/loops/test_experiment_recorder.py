"""The pump of experiments: rows from the link are written, kept while the database is away, and
bounded."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from control.errors import DatabaseGone
from control.experiments.analysis import analyse
from control.experiments.evaluation import Comparison
from control.experiments.stamp import ArmIdentity, Stamper, unit_key
from control.gateways.messages import (
    ArmReport,
    ArmReports,
    ExposureRow,
    Exposures,
    FeedbackRow,
    FeedbackRows,
)
from control.loops import experiment_recorder
from control.loops.arm_deltas import ArmDeltas
from control.loops.experiment_recorder import ExperimentRecorder
from control.rollouts.arms import ArmTotals, OutcomeCounts
from control.sql.database import Database
from control.statistics.histogram import Histogram
from support.experiments import started

KEY = b"k" * 32


@pytest.fixture
def colour(sqlite: Database) -> tuple[Database, str]:
    return sqlite, started(sqlite).id


def exposures(experiment: str, *units: str, arm: str = "a") -> Exposures:
    now = time.time()
    return Exposures(
        tuple(ExposureRow(experiment, unit_key(unit).hex(), arm, now) for unit in units)
    )


def value(unit: str, stamp: str = "", name: str = "shop") -> FeedbackRow:
    return FeedbackRow(name, "conversion", True, time.time(), stamp, "", unit, "")


def pumped(
    made: ExperimentRecorder,
    database: Database,
    units: int,
    *frames: Exposures | FeedbackRows,
    too: Callable[[], bool] = lambda: True,
) -> None:
    """Hand it the frames and let it run until that many units are seen and what is to be so `too`,
    20 s at most."""

    async def run() -> None:
        for frame in frames:
            await made.record(frame)
        job = asyncio.create_task(made.run())
        try:
            await asyncio.to_thread(wait)
        finally:
            job.cancel()
            await asyncio.gather(job, return_exceptions=True)

    def wait() -> None:
        until = time.monotonic() + 60
        while sum(seen(database).values()) != units or not too():
            assert time.monotonic() < until, seen(database)
            time.sleep(0.01)

    asyncio.run(run())


def seen(database: Database) -> dict[str, int]:
    with database.reading() as session:
        return dict(analyse(session, "colour").units)


def test_what_gateways_tell_is_counted_once(colour: tuple[Database, str]) -> None:
    database, experiment = colour
    made = ExperimentRecorder(database, "srv", "boot", KEY)
    stamp = Stamper(KEY, ArmIdentity("shop", "b", "digits", 2, experiment)).sign(
        unit_key("eve"), time.time()
    )
    told = [value("ada"), value("", stamp), value("", "bad"), value("", stamp, "other")]
    frames = [exposures(experiment, "ada", "bob"), FeedbackRows(tuple(told))]
    pumped(made, database, 3, *frames, *frames)
    assert seen(database) == {"a": 2, "b": 1}
    with database.reading() as session:
        (found,) = [
            one for one in analyse(session, "colour").comparisons if one.metric.name == "conversion"
        ]
    assert (found.value, found.control_value, found.n) == (1.0, 0.5, 3)


def test_rows_wait_while_the_database_is_away(
    colour: tuple[Database, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    database, experiment = colour
    monkeypatch.setattr(experiment_recorder, "GONE_TICK_S", 0.01)
    made = _Interrupted(database, "srv", "boot", KEY)
    pumped(made, database, 1, exposures(experiment, "ada"))
    assert made.away == 0


class _Interrupted(ExperimentRecorder):
    """Its database is away at first."""

    away = 2

    def _commit(self, write: Any, rows: list[Any]) -> None:
        if self.away:
            self.away -= 1
            raise DatabaseGone("away")
        super()._commit(write, rows)


def test_more_rows_than_fit_are_dropped_and_counted(
    colour: tuple[Database, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    database, experiment = colour
    monkeypatch.setattr(experiment_recorder, "MOST_WAITING", 2)
    made = ExperimentRecorder(database, "srv", "boot", KEY)
    pumped(made, database, 2, exposures(experiment, "ada", "bob", "eve"))
    assert made.dropped == 1


def counted(requests: int, errors: int, boot: str = "b1", copies: bool = False) -> ArmReports:
    latency = Histogram()
    for _ in range(requests - errors):
        latency.add(0.01)
    outcomes = ArmTotals(OutcomeCounts(requests, errors), latency)
    return ArmReports("srv", boot, (ArmReport("shop", "", "a", "m", 1, copies, 0, 0, 0, outcomes),))


def test_only_what_was_answered_since_the_last_time_is_measured() -> None:
    made = ArmDeltas()
    assert not made.update(counted(10, 1))  # an earlier process may have told of it
    assert not made.update(counted(50, 1, copies=True))
    (found,) = made.update(counted(30, 4))
    assert (found.requests, found.errors, found.latencies.n) == (20, 3, 17)
    assert not made.update(counted(30, 4))
    assert not made.update(counted(5, 0, boot="b2"))


def test_what_servers_count_comes_into_the_analysis(colour: tuple[Database, str]) -> None:
    database, experiment = colour
    made = ExperimentRecorder(database, "srv", "boot", KEY)
    for requests, errors in ((10, 1), (30, 4)):
        asyncio.run(made.counted(counted(requests, errors)))

    def found(metric: str) -> Comparison:
        with database.reading() as session:
            return analyse(session, "colour").of("b", metric)

    frame = exposures(experiment, "ada")
    pumped(made, database, 1, frame, too=lambda: found("latency").n == 17)
    assert found("errors").control_value == pytest.approx(3 / 20)


def test_counts_are_kept_from_the_commit_on_that_may_have_started_an_experiment(
    sqlite: Database,
) -> None:
    made = ExperimentRecorder(sqlite, "one", "boot", KEY)

    made._running = made._record()
    assert not made._running

    async def kept() -> None:
        for requests in (10, 20):
            await made.counted(counted(requests, 0))
        assert not made._answered
        made.committed()
        await made.counted(counted(30, 0))
        assert len(made._answered) == 1

    asyncio.run(kept())
