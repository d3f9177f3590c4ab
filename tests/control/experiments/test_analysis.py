"""Analyses from the rows, and the points of their charts."""

from datetime import timedelta

import pytest

from control.errors import NotFound
from control.experiments import analysis
from control.experiments.tables import Experiment, Point
from control.sql.database import Database
from support.control import ADA, rows, told
from support.experiments import exposed, given, seen, started, stopped
from support.experiments import told as value


def measure(database: Database, later: timedelta = timedelta(0)) -> int:
    with database.change(ADA) as tx:
        tx.now += later
        return analysis.record_points(tx)


def test_an_analysis_says_what_came_of_the_rows(database: Database) -> None:
    view = started(database)
    units = [f"u{number}" for number in range(400)]
    exposed(database, seen(view, "a", *units[:200]) + seen(view, "b", *units[200:]))
    given(database, *(value(view, unit, 1) for unit in units[190:300]))
    with database.reading() as session:
        found = analysis.analyse(session, "colour")
    comparison = found.of("b", "conversion")
    assert (comparison.control_value, comparison.value) == (0.05, 0.5)
    assert comparison.decision == "better"
    written = analysis.view_of_analysis(found)
    assert written.units == {"a": 200, "b": 200}
    assert written.verdict.startswith("b is better in conversion; ")
    assert written.comparisons[0].sentence.startswith("conversion: b is better than a, 45")


def test_points_are_a_minute_apart_and_further_as_an_experiment_ages(database: Database) -> None:
    view = started(database)
    exposed(database, seen(view, "a", "ada"))
    later = [timedelta(seconds=seconds) for seconds in (0, 30, 61, 90)]
    assert [measure(database, one) for one in later] == [1, 0, 1, 0]
    days = [timedelta(days=10, minutes=minutes) for minutes in (0, 60, 73)]
    assert [measure(database, one) for one in days] == [1, 0, 1]
    with database.reading() as session:
        points = analysis.series(session, "colour", "conversion", "b")
    assert len(points) == 4
    assert [point.at for point in points] == sorted(point.at for point in points)
    assert points[0].units == 1
    assert (points[0].lower, points[0].upper, points[0].estimate) == (-1.0, 1.0, None)
    assert [kind for kind, _ in told(database)].count("experiment.measured") == 4


def test_only_running_experiments_get_points(database: Database) -> None:
    started(database)
    stopped(database)
    assert measure(database) == 0
    assert rows(database, Point) == []
    assert len(rows(database, Experiment)) == 1


def test_a_series_of_nothing_is_empty_and_of_an_unknown_experiment_an_error(
    database: Database,
) -> None:
    started(database)
    with database.reading() as session:
        assert analysis.series(session, "colour", "conversion", "b") == []
        with pytest.raises(NotFound, match="there is no experiment 'color'"):
            analysis.series(session, "color", "conversion", "b")
