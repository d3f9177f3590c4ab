"""The traffic that a rollout's outlook is made from, out of what gateways have counted."""

from datetime import UTC, datetime

import pytest

from control.rollouts.expectations import outlook_of
from control.rollouts.outlook import RECENT_S, RolloutOutlook
from control.series.cache import SeriesCache
from control.series.levels import DAY_S
from control.series.points import WINDOW_S, SeriesPoint, SeriesSubject, SeriesWindow, SubjectPoint
from control.series.recording import store
from control.sql.database import SYSTEM, Database
from support.control_rollout import NAME, alive, begun
from support.experiments import CONVERSION, started

NOW = 20_000 * DAY_S
STARTS = range(NOW - RECENT_S, NOW, WINDOW_S)
SERVER = SeriesSubject("server")
MODEL = SeriesSubject("version", NAME, 1)
ARM = SeriesSubject("arm", NAME, 0, "stable")
TEN_PER_S = SeriesPoint(succeeded=99, failed={"OTHER": 1}, latency=(1, 99))


def counted(database: Database, starts: range, *subjects: SeriesSubject) -> None:
    rows = tuple(SubjectPoint(one, TEN_PER_S) for one in (SERVER, *subjects))
    with database.change(SYSTEM) as tx:
        tx.now = datetime.fromtimestamp(NOW, UTC)
        for at in starts:
            store(tx, SeriesWindow("srv-1", "x", at, rows))


def expected(database: Database) -> RolloutOutlook:
    alive(database, "srv-1", NAME, 1, 2)
    rollout, now = begun(database), datetime.fromtimestamp(NOW, UTC)
    with database.reading() as session:
        return outlook_of(session, SeriesCache(), rollout.id, now)


@pytest.mark.parametrize("routed", [0, 1, 90])
def test_traffic_of_a_route_that_began_lately_goes_on_from_that_of_the_model(
    database: Database, routed: int
) -> None:
    direct = len(STARTS) - routed
    counted(database, STARTS[:direct], MODEL)
    counted(database, STARTS[direct:], MODEL, ARM)
    found = expected(database)
    assert found.requests_per_s == pytest.approx(10.0)
    assert found.error_rate == pytest.approx(0.01)


def test_requests_that_name_the_version_do_not_count_beside_those_of_the_route(
    database: Database,
) -> None:
    counted(database, STARTS[:1], ARM)
    counted(database, STARTS[1:], MODEL)
    assert expected(database).requests_per_s == pytest.approx(10.0 / len(STARTS))


def test_minutes_without_a_server_does_not_make_the_traffic_less(database: Database) -> None:
    counted(database, STARTS[-30:], MODEL)
    assert expected(database).requests_per_s == pytest.approx(10.0)


@pytest.mark.parametrize(("stable", "candidate", "said"), [(1, 2, 0), (1, 3, 1), (2, 1, 1)])
def test_only_an_experiment_of_the_two_versions_is_a_business_metric(
    database: Database, stable: int, candidate: int, said: int
) -> None:
    arms = [
        {"name": "stable", "model": NAME, "version": stable},
        {"name": "candidate", "model": NAME, "version": candidate},
    ]
    started(database, route=NAME, arms=arms, metrics=[CONVERSION])
    cannot = expected(database).cannot
    assert sum(one.startswith("no business metric") for one in cannot) == said
