"""Windows are kept once, sealed into chunks, and read the same from whichever level has them."""

import random
import threading
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from sqlalchemy import func, select

from control.series import recording
from control.series.cache import SeriesCache
from control.series.levels import DAY_S, HOUR_S, LATE_S, MINUTES, QUARTERS, WINDOWS
from control.series.points import (
    WINDOW_S,
    SeriesPoint,
    SeriesSubject,
    SeriesWindow,
    SubjectPoint,
)
from control.series.reading import SeriesRange
from control.series.selection import SeriesSelection
from control.series.tables import SeriesChunkRow, SeriesWindowRow
from control.sql.database import SYSTEM, Database, Transaction
from support.control import wait_until_one_waits_for_a_lock

DAY = 20_000 * DAY_S
"""Midnight."""

TWO, THREE = (SeriesSubject("version", "digits", number) for number in (2, 3))


def window(at: int, *rows: tuple[SeriesSubject, int], server: str = "a", boot: str = "b"):  # type: ignore[no-untyped-def]
    points = tuple(
        SubjectPoint(subject, SeriesPoint(succeeded, {}, (100, succeeded), pending=succeeded))
        for subject, succeeded in rows
    )
    return SeriesWindow(server, boot, at, points)


def change(database: Database, now: int, work: Callable[[Transaction], object]) -> None:
    with database.change(SYSTEM) as tx:
        tx.now = datetime.fromtimestamp(now, UTC)
        work(tx)


def store(database: Database, now: int, *windows: SeriesWindow) -> None:
    for one in windows:
        change(database, now, lambda tx, one=one: recording.store(tx, one))


def seal_all(database: Database, now: int, server: str = "a") -> None:
    sealed = [1]
    while sealed[0]:
        change(database, now, lambda tx: sealed.__setitem__(0, recording.seal(tx, server)))


def sums(database: Database, since: int, until: int, level=WINDOWS) -> dict[str, dict[int, int]]:  # type: ignore[no-untyped-def]
    within = SeriesRange(since, until, level.step_s, level)
    with database.reading() as session:
        found = SeriesCache().read(session, within, SeriesSelection("version"))
    return {
        name: {at: one.succeeded for at, one in points.items()} for name, points in found.items()
    }


def rows_of(database: Database, table: type) -> int:
    with database.reading() as session:
        return session.scalar(select(func.count()).select_from(table)) or 0


def test_a_window_that_is_sent_twice_is_kept_once(database: Database) -> None:
    store(database, DAY, window(DAY, (TWO, 5)), window(DAY, (TWO, 5)))
    assert sums(database, DAY, DAY + 60) == {"2": {DAY: 5}}


def test_a_window_that_two_transactions_store_at_once_is_kept_once(database: Database) -> None:
    again = threading.Thread(target=store, args=(database, DAY, window(DAY, (TWO, 5))))
    with database.change(SYSTEM) as tx:
        recording.store(tx, window(DAY, (TWO, 5)))
        again.start()
        if not database.is_sqlite:  # where only one transaction writes at a time
            wait_until_one_waits_for_a_lock(database)
    again.join()
    assert sums(database, DAY, DAY + 60) == {"2": {DAY: 5}}


def test_a_window_that_a_restart_split_adds_up(database: Database) -> None:
    store(database, DAY, window(DAY, (TWO, 5)), window(DAY, (TWO, 3), boot="c"))
    assert sums(database, DAY, DAY + 60) == {"2": {DAY: 8}}


def test_servers_add_up_and_can_be_told_apart(database: Database) -> None:
    store(database, DAY, window(DAY, (TWO, 5)), window(DAY, (TWO, 4), server="z"))
    assert sums(database, DAY, DAY + 60) == {"2": {DAY: 9}}
    with database.reading() as session:
        within = SeriesRange(DAY, DAY + 60, 10, WINDOWS)
        only = SeriesCache().read(session, within, SeriesSelection("version"), server="z")
    assert only["2"][DAY].succeeded == 4


def test_gauges_of_servers_add_up_within_a_step_and_are_the_largest_over_time(
    database: Database,
) -> None:
    store(database, DAY, window(DAY, (TWO, 5)), window(DAY + 10, (TWO, 2)))
    store(database, DAY, window(DAY, (TWO, 4), server="z"))
    with database.reading() as session:
        within = SeriesRange(DAY, DAY + 60, 60, MINUTES)
        found = SeriesCache().read(session, within, SeriesSelection("version"))
    assert found["2"][DAY].pending == 9


def test_every_level_tells_the_same_numbers(database: Database) -> None:
    rng = random.Random(3)
    windows = [
        window(DAY + at, (TWO, rng.randrange(1, 50)), *([(THREE, 7)] if at % 40 == 0 else []))
        for at in range(0, 3 * HOUR_S, WINDOW_S)
        if rng.random() < 0.3
    ]
    with database.change(SYSTEM) as tx:
        tx.now = datetime.fromtimestamp(DAY, UTC)
        for one in windows:
            recording.store(tx, one)
    total = {
        str(subject.version): sum(
            row.point.succeeded for one in windows for row in one.rows if row.subject == subject
        )
        for subject in (TWO, THREE)
    }

    def totals() -> list[dict[str, int]]:
        found = [sums(database, DAY, DAY + DAY_S, level) for level in (MINUTES, QUARTERS)]
        return [{name: sum(one.values()) for name, one in each.items()} for each in found]

    before = sums(database, DAY, DAY + DAY_S, MINUTES)
    assert totals() == [total, total]
    seal_all(database, DAY + 2 * HOUR_S + LATE_S)  # two hours of three
    assert totals() == [total, total]
    assert sums(database, DAY, DAY + DAY_S, MINUTES) == before
    seal_all(database, DAY + DAY_S + LATE_S)
    assert totals() == [total, total]
    assert sums(database, DAY, DAY + DAY_S, MINUTES) == before


def test_half_an_hour_of_a_sealed_one_is_read_without_the_rest(database: Database) -> None:
    store(database, DAY, *(window(DAY + at, (TWO, 1)) for at in range(0, HOUR_S, 60)))
    seal_all(database, DAY + HOUR_S + LATE_S)
    found = sums(database, DAY + 600, DAY + 1200, MINUTES)
    assert list(found["2"]) == list(range(DAY + 600, DAY + 1200, 60))


def test_windows_go_when_they_are_old_and_sealed_and_chunks_when_they_are_old(
    database: Database,
) -> None:
    store(database, DAY, window(DAY, (TWO, 1)), window(DAY + HOUR_S, (TWO, 2)))
    later = DAY + HOUR_S + LATE_S
    store(database, later + DAY_S, window(later, (TWO, 3)))
    assert rows_of(database, SeriesWindowRow) == 3  # old, and not sealed
    seal_all(database, DAY + DAY_S + LATE_S)
    store(database, later + DAY_S, window(later + DAY_S, (TWO, 4)))
    assert rows_of(database, SeriesWindowRow) == 1
    change(database, DAY + 4 * DAY_S, recording.forget_chunks)
    assert sums(database, DAY, DAY + DAY_S, QUARTERS)["2"][DAY] == 1
    with database.reading() as session:
        levels = {*session.scalars(select(SeriesChunkRow.level))}
    assert levels == {QUARTERS.step_s}
    change(database, DAY + 62 * DAY_S, recording.forget_chunks)
    assert rows_of(database, SeriesChunkRow) == 0


def test_a_server_that_was_away_for_weeks_seals_only_what_there_is(database: Database) -> None:
    store(database, DAY, window(DAY, (TWO, 1)))
    seal_all(database, DAY + HOUR_S + LATE_S)
    month = DAY + 30 * DAY_S
    store(database, month, window(month, (TWO, 2)))
    sealed = []
    change(database, month + DAY_S + LATE_S, lambda tx: sealed.append(recording.seal(tx, "a")))
    change(database, month + DAY_S + LATE_S, lambda tx: sealed.append(recording.seal(tx, "a")))
    assert sum(sealed) <= 4
    assert rows_of(database, SeriesChunkRow) <= 8


@pytest.mark.parametrize("now_s", [HOUR_S, HOUR_S + LATE_S - 1])
def test_an_hour_of_which_more_may_come_is_not_sealed(database: Database, now_s: int) -> None:
    store(database, DAY, window(DAY, (TWO, 1)))
    seal_all(database, DAY + now_s)
    assert rows_of(database, SeriesChunkRow) == 0
