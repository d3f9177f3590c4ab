"""What becomes of windows that arrive faster than the database takes them."""

import asyncio

from sqlalchemy import func, select

from control.loops.series_recorder import AT_ONCE, SeriesRecorder
from control.series.points import (
    SeriesPoint,
    SeriesStored,
    SeriesSubject,
    SeriesWindow,
    SubjectPoint,
)
from control.series.tables import SeriesWindowRow
from control.sql.database import SYSTEM, Database

AT = 1_790_000_000
BOOT = "b"
ROW = SubjectPoint(SeriesSubject("version", "digits", 1), SeriesPoint(3, {}, (100, 3), pending=0))


def window(number: int) -> SeriesWindow:
    return SeriesWindow("a", BOOT, AT + 10 * number, (ROW,))


def idle(number: int) -> SeriesWindow:
    row = SubjectPoint(SeriesSubject("server"), SeriesPoint(instances=2, memory_bytes=10**8))
    return SeriesWindow("a", BOOT, AT + 10 * number, (row,))


def kept(database: Database) -> int:
    with database.reading() as session:
        return session.scalar(select(func.count()).select_from(SeriesWindowRow)) or 0


async def record(database: Database, windows: list[SeriesWindow]) -> list[SeriesStored | None]:
    """All at once, while nothing can be written; then the database takes them."""
    recorder = SeriesRecorder(database, "a")
    with database.change(SYSTEM) as tx:
        tx.alone()
        tasks = [asyncio.create_task(recorder.record(one)) for one in windows]
        await asyncio.sleep(0)
    return await asyncio.gather(*tasks)


def test_a_window_that_comes_again_while_it_is_stored_is_answered_twice_and_kept_once(
    database: Database,
) -> None:
    assert asyncio.run(record(database, [window(0), window(0)])) == [SeriesStored(AT, BOOT)] * 2
    assert kept(database) == 1


def test_windows_beyond_the_bound_are_not_answered_so_that_they_come_again(
    database: Database,
) -> None:
    answers = asyncio.run(record(database, [window(number) for number in range(AT_ONCE + 3)]))
    stored = [SeriesStored(AT + 10 * number, BOOT) for number in range(AT_ONCE)]
    assert answers == [*stored, None, None, None]
    assert kept(database) == AT_ONCE


def test_a_database_that_is_gone_leaves_a_window_unanswered(database: Database) -> None:
    recorder = SeriesRecorder(Database(f"{database.url}_gone"), "a")
    assert asyncio.run(recorder.record(window(0))) is None


def test_windows_of_an_idle_server_are_written_with_the_next_that_has_something(
    database: Database,
) -> None:
    """Where servers share the database, others read it, and each window is written at once."""
    recorder = SeriesRecorder(database, "a")

    async def offer(*windows: SeriesWindow) -> int:
        for one in windows:
            assert await recorder.record(one) == SeriesStored(one.at, BOOT)
        return kept(database)

    assert asyncio.run(offer(idle(0))) == 1, "nothing is known of the time before"
    assert asyncio.run(offer(idle(1), idle(2))) == (1 if database.is_sqlite else 3)
    assert asyncio.run(offer(window(3))) == 4


def test_who_reads_has_what_waits_written_before(sqlite: Database) -> None:
    recorder = SeriesRecorder(sqlite, "a")
    for number in range(3):
        asyncio.run(recorder.record(idle(number)))
    recorder.write_held()
    recorder.write_held()
    assert kept(sqlite) == 3


def test_windows_that_wait_are_written_when_the_process_ends(sqlite: Database) -> None:
    async def live() -> None:
        recorder = SeriesRecorder(sqlite, "a")
        running = asyncio.create_task(recorder.run())
        for number in range(3):
            await recorder.record(idle(number))
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(live())
    assert kept(sqlite) == 3


def test_windows_that_have_waited_long_are_written_before_their_stretch_is_sealed(
    sqlite: Database,
) -> None:
    recorder = SeriesRecorder(sqlite, "a")

    async def offer() -> None:
        for number in range(3):
            await recorder.record(idle(number))
        assert len(recorder._held.waiting()) == 2
        assert await asyncio.to_thread(recorder._seal)

    asyncio.run(offer())
    assert not recorder._held.waiting()
