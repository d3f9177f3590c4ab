"""Time series keep within their limit: the oldest stretches go, the newest of each level stay."""

from datetime import UTC, datetime

import pytest
from sqlalchemy import select

from control.series.levels import DAY_S, HOUR_S, MINUTES, QUARTERS
from control.series.storage import shrink, storage
from control.series.tables import SeriesChunkRow, SeriesWindowRow
from control.sql.database import SYSTEM, Database

DAY = 20_000 * DAY_S
PAYLOAD = b"x" * 1000


@pytest.fixture
def filled(database: Database) -> Database:
    """Three days of quarters, four hours of minutes, one window; a kilobyte each."""
    with database.change(SYSTEM) as tx:
        tx.now = datetime.fromtimestamp(DAY, UTC)
        for day in (3, 2, 1):
            tx.session.add(_chunk(QUARTERS.step_s, DAY - day * DAY_S))
        for hour in (4, 3, 2, 1):
            tx.session.add(_chunk(MINUTES.step_s, DAY - hour * HOUR_S))
        tx.session.add(SeriesWindowRow(server_id="a", at=DAY, boot="b", payload=PAYLOAD))
    return database


def _chunk(level: int, start: int, server: str = "a") -> SeriesChunkRow:
    subject = "version/m/1/"
    return SeriesChunkRow(
        level=level, start=start, subject=subject, server_id=server, payload=PAYLOAD
    )


def starts(database: Database) -> dict[int, list[int]]:
    with database.reading() as session:
        rows = session.execute(select(SeriesChunkRow.level, SeriesChunkRow.start)).all()
    return {level: sorted(start for one, start in rows if one == level) for level, _ in rows}


def test_the_size_is_that_of_all_payloads_and_the_oldest_is_known(filled: Database) -> None:
    with filled.reading() as session:
        found = storage(session)
    assert (found.size_bytes, found.oldest) == (8000, DAY - 3 * DAY_S)


def test_nothing_is_stored_at_first(database: Database) -> None:
    with database.reading() as session:
        found = storage(session)
    assert (found.size_bytes, found.oldest) == (0, None)


def test_the_oldest_go_until_the_rest_fits(filled: Database) -> None:
    with filled.change(SYSTEM) as tx:
        assert shrink(tx, 5500) == 3000
    kept = starts(filled)
    assert kept[QUARTERS.step_s] == [DAY - DAY_S]
    assert len(kept[MINUTES.step_s]) == 3


def test_the_newest_stretch_of_each_level_stays(filled: Database) -> None:
    with filled.change(SYSTEM) as tx:
        shrink(tx, 1)
    assert starts(filled) == {QUARTERS.step_s: [DAY - DAY_S], MINUTES.step_s: [DAY - HOUR_S]}


def test_what_fits_is_left_alone(filled: Database) -> None:
    with filled.change(SYSTEM) as tx:
        assert shrink(tx, 8000) == 0
    assert len(starts(filled)[QUARTERS.step_s]) == 3


def test_the_newest_stretch_of_a_server_that_is_behind_stays_too(filled: Database) -> None:
    with filled.change(SYSTEM) as tx:
        tx.session.add(_chunk(QUARTERS.step_s, DAY - 3 * DAY_S, server="late"))
        tx.session.flush()
        shrink(tx, 1)
    assert starts(filled)[QUARTERS.step_s] == [DAY - 3 * DAY_S, DAY - DAY_S]
