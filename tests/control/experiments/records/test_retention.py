"""Units are forgotten after the conclusion, a piece at a time; what was found stays."""

from datetime import timedelta

from control.experiments.analysis import analyse
from control.experiments.records.retention import forget_units
from control.experiments.service import conclude_experiment
from control.experiments.tables import Exposure, Feedback
from control.sql.database import Database
from support.control import ADA, rows
from support.experiments import exposed, given, seen, started, stopped, told


def forget(database: Database, keep: timedelta, at_once: int = 10_000) -> int:
    with database.change(ADA) as tx:
        return forget_units(tx, keep, at_once)


def test_units_of_a_concluded_experiment_are_forgotten_and_its_numbers_are_not(
    database: Database,
) -> None:
    view, other = started(database), started(database, "other", "shelf")
    units = [f"u{number}" for number in range(20)]
    exposed(database, seen(view, "a", *units) + seen(other, "a", *units))
    given(database, *(told(view, unit, 1) for unit in units))
    stopped(database)
    assert forget(database, timedelta(0)) == 0
    with database.change(ADA) as tx:
        ended = conclude_experiment(tx, "colour", "keep a")
    assert ended.conclusion is not None
    assert ended.conclusion["verdict"].startswith("Do not trust")
    assert forget(database, timedelta(days=1)) == 0
    forgotten = []
    while forgotten[-1:] != [0]:
        forgotten.append(forget(database, timedelta(0), at_once=5))
    assert sum(forgotten) >= 20
    assert {row.experiment_id for row in rows(database, Exposure)} == {other.id}
    assert rows(database, Feedback) == []
    with database.reading() as session:
        assert analyse(session, "colour").of("b", "conversion").control_value == 1.0
