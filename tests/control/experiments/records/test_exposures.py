"""A unit counts once, in the arm it saw first, however often and in whatever batches it is told."""

import random
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from control.experiments.records.exposures import ExposureCounts, ExposureEvent
from control.experiments.service import ExperimentView
from control.experiments.sums import UNITS
from control.experiments.tables import Exposure
from control.experiments.totals import read_sums
from control.sql.database import Database
from support.control import rows
from support.experiments import draft, exposed, seen, started, stopped

UNITS_TOLD = [f"u{number}" for number in range(1_200)]


def units_of(database: Database, view: ExperimentView) -> dict[str, tuple[int, int]]:
    with database.reading() as session:
        sums = read_sums(session, view.id)
    return {arm: (one.n, one.ones) for (arm, metric), one in sums.items() if metric == UNITS}


def test_a_batch_told_again_changes_nothing(database: Database) -> None:
    view = started(database)
    batch = seen(view, "a", *UNITS_TOLD[:700]) + seen(view, "b", *UNITS_TOLD[700:])
    assert exposed(database, batch) == ExposureCounts(new=1_200)
    assert exposed(database, batch + batch[:3]) == ExposureCounts(known=1_203)
    assert units_of(database, view) == {"a": (700, 0), "b": (500, 0)}
    assert len(rows(database, Exposure)) == 1_200


def test_a_unit_keeps_its_first_arm_and_is_marked_once_when_it_crosses(database: Database) -> None:
    view = started(database)
    exposed(database, seen(view, "a", "ada", "grace"))
    crossing = seen(view, "b", "ada", later_s=1)
    assert exposed(database, crossing) == ExposureCounts(known=1, crossed=1)
    assert exposed(database, crossing) == ExposureCounts(known=1, crossed=1)
    both = seen(view, "b", "new", later_s=2) + seen(view, "a", "new", later_s=1)
    assert exposed(database, both) == ExposureCounts(new=1, known=1, crossed=1)
    assert units_of(database, view) == {"a": (3, 2), "b": (0, 0)}


def test_what_does_not_fit_is_refused_alone(database: Database) -> None:
    view, other = started(database), draft(database, "other", "shelf")
    fits = seen(view, "a", "ada")
    long_ago = [ExposureEvent(view.id, "u", "a", fits[0].at - timedelta(hours=1))]
    future = [ExposureEvent(view.id, "u", "a", fits[0].at + timedelta(hours=1))]
    unknown = [
        ExposureEvent("none", "u", "a", fits[0].at),
        ExposureEvent(other.id, "u", "a", fits[0].at),
    ]
    batch = [*fits, *seen(view, "c", "u"), *long_ago, *future, *unknown]
    assert exposed(database, batch) == ExposureCounts(new=1, refused=5)


def test_what_a_gateway_saw_before_the_stop_still_counts(database: Database) -> None:
    view = started(database)
    stopped(database)
    assert exposed(database, seen(view, "a", "ada")) == ExposureCounts(new=1)
    assert exposed(database, seen(view, "a", "grace", later_s=3_600)) == ExposureCounts(refused=1)


def test_a_batch_has_a_limit(database: Database) -> None:
    view = started(database)
    with pytest.raises(ValueError, match="at most 10000"):
        exposed(database, seen(view, "a", "ada") * 10_001)


def test_servers_that_tell_of_the_same_units_at_once_count_each_once(database: Database) -> None:
    view = started(database)

    def tell(number: int) -> ExposureCounts:
        units = random.Random(number).sample(UNITS_TOLD[:200], 150)
        return exposed(database, seen(view, "ab"[number % 2], *units, later_s=number))

    with ThreadPoolExecutor(4) as pool:
        told = list(pool.map(tell, range(8)))
    there = rows(database, Exposure)
    assert sum(one.new for one in told) == len(there) == len({row.unit for row in there})
    counted = units_of(database, view)
    for arm in "ab":
        mine = [row for row in there if row.arm == arm]
        assert counted[arm] == (len(mine), sum(row.crossed for row in mine))
