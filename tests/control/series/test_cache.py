"""What is kept is what would be read: whatever came, was sealed or was forgotten since."""

import gc
import random
import tracemalloc
from datetime import UTC, datetime

import pytest

from control.series import reading, recording
from control.series.cache import SeriesCache
from control.series.levels import DAY_S, HOUR_S, MINUTES, QUARTERS, WINDOWS, SeriesLevel
from control.series.points import (
    LanguagePoint,
    SeriesPoint,
    SeriesSubject,
    SeriesWindow,
    StepPoint,
    SubjectPoint,
)
from control.series.reading import SeriesRange
from control.series.selection import SeriesSelection
from control.sql.database import SYSTEM, Database

DAY = 20_000 * DAY_S
"""Midnight."""

SUBJECTS = (
    SeriesSubject("server"),
    *(SeriesSubject("version", name, version) for name in ("m", "m1", "n") for version in (1, 2)),
    SeriesSubject("arm", "m", 0, "stable"),
)
SELECTIONS = (
    SeriesSelection("model"),
    SeriesSelection("version", "m"),
    SeriesSelection("version", "m", 2),
    SeriesSelection("arm", "m"),
    SeriesSelection("server"),
)


def store(database: Database, now: int, window: SeriesWindow) -> None:
    with database.change(SYSTEM) as tx:
        tx.now = datetime.fromtimestamp(now, UTC)
        recording.store(tx, window)


def seal(database: Database, now: int, server: str) -> None:
    sealed = 1
    while sealed:
        with database.change(SYSTEM) as tx:
            tx.now = datetime.fromtimestamp(now, UTC)
            sealed = recording.seal(tx, server)


def random_window(rng: random.Random, at: int) -> SeriesWindow:
    rows = tuple(
        SubjectPoint(
            subject,
            SeriesPoint(
                rng.randrange(9), {"OTHER": rng.randrange(1, 3)}, (rng.randrange(9), 3), pending=1
            ),
        )
        for subject in rng.sample(SUBJECTS, 5)
    )
    return SeriesWindow(rng.choice("ab"), rng.choice("xy"), at, rows)


def read_afresh(
    database: Database, within: SeriesRange, selection: SeriesSelection, server: str
) -> dict[str, dict[int, SeriesPoint]]:
    with database.reading() as session:
        return SeriesCache().read(session, within, selection, server)


@pytest.mark.parametrize("limit_bytes", [50_000, 100_000_000])
def test_kept_points_are_those_that_are_read_afresh(database: Database, limit_bytes: int) -> None:
    """More than a day passes in steps of four hours, with windows that come late."""
    rng = random.Random(limit_bytes)
    cache = SeriesCache(limit_bytes)
    for hour in range(0, 32, 4):
        now = DAY + (hour + 1) * HOUR_S
        for _ in range(4):
            late = rng.randrange(0, 2400)
            store(database, now, random_window(rng, (now - late) // 10 * 10))
        if rng.random() < 0.7:
            seal(database, now, rng.choice("ab"))
        level: SeriesLevel = rng.choice((WINDOWS, MINUTES, QUARTERS))
        step_s = level.step_s * rng.choice((1, 2, 7))
        since = (now - rng.choice((HOUR_S, 5 * HOUR_S))) // step_s * step_s
        within = SeriesRange(since, now // step_s * step_s + step_s, step_s, level)
        selection, server = rng.choice(SELECTIONS), rng.choice(("", "", "a"))
        for _ in range(2):
            with database.reading() as session:
                found = cache.read(session, within, selection, server)
            assert found == read_afresh(database, within, selection, server)


def test_only_what_is_new_is_read_again(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, cache = random.Random(1), SeriesCache()
    within = SeriesRange(DAY, DAY + HOUR_S, 60, WINDOWS)
    for at in range(DAY, DAY + 1800, 10):
        store(database, at, random_window(rng, at))
    read_ranges: list[tuple[int, int]] = []
    read = reading.read

    def noted(session, part, selection, server):  # type: ignore[no-untyped-def]
        read_ranges.append((part.since - DAY, part.until - DAY))
        return read(session, part, selection, server)

    monkeypatch.setattr(reading, "read", noted)

    def look() -> list[tuple[int, int]]:
        read_ranges.clear()
        with database.reading() as session:
            cache.read(session, within, SELECTIONS[0])
        return read_ranges

    assert look() == [(0, 1800)]
    assert look() == []
    store(database, DAY + 1800, random_window(rng, DAY + 1800))
    store(database, DAY + 1800, SeriesWindow("late", "x", DAY + 600, ()))
    assert look() == [(600, 660), (1800, 1860)]
    assert look() == []


def test_what_is_kept_is_bounded(database: Database) -> None:
    cache = SeriesCache(50_000)
    for at in range(DAY, DAY + 600, 10):
        store(database, at, random_window(random.Random(at), at))
    for selection in SELECTIONS:
        with database.reading() as session:
            cache.read(session, SeriesRange(DAY, DAY + 600, 10, WINDOWS), selection)
    assert 25_000 < cache.size_bytes <= 50_000


def test_points_of_ensembles_and_language_models_are_kept_within_the_same_memory(
    database: Database,
) -> None:
    rng = random.Random(1)

    def latency() -> tuple[int, ...]:
        return tuple(number for _ in range(20) for number in (rng.randrange(5), rng.randrange(999)))

    for at in range(DAY, DAY + 400, 10):
        steps = {f"{number}:m": StepPoint(answered=at, latency=latency()) for number in range(10)}
        points = (
            SeriesPoint(at, latency=latency(), steps=steps),
            SeriesPoint(at, latency=latency(), language=LanguagePoint(at, first_token=latency())),
        )
        rows = (SubjectPoint(SUBJECTS[at], point) for at, point in enumerate(points, 1))
        store(database, at, SeriesWindow("a", "x", at, tuple(rows)))
    limit_bytes = 200_000
    cache, warm = SeriesCache(limit_bytes), SeriesCache(0)

    def look(into: SeriesCache) -> None:
        with database.reading() as session:
            into.read(session, SeriesRange(DAY, DAY + 400, 10, WINDOWS), SELECTIONS[0])

    look(warm)
    gc.collect()
    tracemalloc.start()
    try:
        look(cache)
        gc.collect()
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert limit_bytes / 2 < kept_bytes < limit_bytes * 1.1
    assert warm.size_bytes == 0
