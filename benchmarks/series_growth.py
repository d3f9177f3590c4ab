"""How a database grows by time series: `python -m benchmarks.series_growth`. 600 versions that
answer 100 requests a second together, for 25 hours by a clock of its own.

Windows are made as a gateway makes them (a row for each version that answered, latencies in a
histogram), stored and sealed by the control process's own code, every moment an argument. It prints
the bytes of each level and of the file as the hours pass, and what a day adds: in the first two
days, while points of a minute are still kept, and from the third on. Ten minutes; 1 when a day adds
more than 25 MB.
"""

import argparse
import random
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime

from sqlalchemy import func, select, text

from control.series import recording
from control.series.levels import CHUNKED, DAY_S, HOUR_S, MINUTES, QUARTERS, WINDOWS
from control.series.points import (
    WINDOW_S,
    SeriesPoint,
    SeriesSubject,
    SeriesWindow,
    SubjectPoint,
    pack_latencies,
)
from control.series.tables import SeriesChunkRow, SeriesWindowRow
from control.sql.database import SYSTEM, Database
from control.sql.migrate import migrate
from control.statistics.histogram import Histogram

BEGIN = 1_790_000_000 - 1_790_000_000 % DAY_S
MOST_BYTES_A_DAY = 25e6
AHEAD = 97
"""Windows that are made once and used again and again; no divisor of an hour's."""


def main() -> int:
    arguments = _arguments()
    made = [_rows(random.Random(number), arguments) for number in range(AHEAD)]
    with tempfile.TemporaryDirectory() as folder:
        database = Database(f"sqlite:///{folder}/series.db")
        migrate(database)
        say(
            "| hours | windows, MB | minutes, MB | quarters, MB | file, MB |\n|---|---|---|---|---|"
        )
        empty = _file_bytes(database)
        for hour in range(arguments.hours):
            _live(database, made, hour)
            if hour % 6 == 5 or hour == arguments.hours - 1:
                sizes = [size / 1e6 for size in _sizes(database)]
                file = _file_bytes(database) / 1e6
                cells = " | ".join(f"{one:.2f}" for one in (*sizes, file))
                say(f"| {hour + 1} | {cells} |")
        return _verdict(database, arguments.hours, empty)


def _verdict(database: Database, hours: int, empty: int) -> int:
    """What a day adds, rows with their keys and pages counted: the file's bytes over the packed."""
    windows, minutes, quarters = _sizes(database)
    share = (_file_bytes(database) - empty) / max(1.0, windows + minutes + quarters)
    sealed = _sealed_hours(database)
    first = minutes / max(1, sealed) * 24 * share
    later = quarters / max(1, hours // 24) * share
    say(f"\nthe file is {share:.2f} times what is packed in it")
    say(f"| what | MB |\n|---|---|\n| windows, at all times | {windows * share / 1e6:.1f} |")
    say(f"| a day's points of a minute, in each of the first two days | {first / 1e6:.1f} |")
    say(f"| a day's points of 15 minutes, in each of 60 days | {later / 1e6:.1f} |")
    say(f"| all of it, after 60 days | {(windows * share + 2 * first + 60 * later) / 1e6:.0f} |")
    return int(max(first, later) > MOST_BYTES_A_DAY)


def _live(database: Database, made: Sequence[tuple[SubjectPoint, ...]], hour: int) -> None:
    """An hour of windows, and after each ten minutes what can be sealed."""
    per_hour = HOUR_S // WINDOW_S
    for number in range(hour * per_hour, (hour + 1) * per_hour):
        at = BEGIN + number * WINDOW_S
        with database.change(SYSTEM) as tx:
            tx.now = datetime.fromtimestamp(at + WINDOW_S, UTC)
            recording.store(tx, SeriesWindow("server", "boot", at, made[number % AHEAD]))
            if number % 60 == 59:
                recording.seal(tx, "server")
    with database.change(SYSTEM) as tx:
        tx.now = datetime.fromtimestamp(BEGIN + (hour + 1) * HOUR_S, UTC)
        recording.forget_chunks(tx)


def _rows(draw: random.Random, arguments: argparse.Namespace) -> tuple[SubjectPoint, ...]:
    """A window: of each version that answered a row, and the server's."""
    rows, all_of_them = [], Histogram()
    mean = arguments.rate * WINDOW_S / arguments.versions
    for number in range(arguments.versions):
        requests = _poisson(draw, mean)
        if not requests:
            continue
        latencies = Histogram()
        for _ in range(requests):
            took_s = draw.lognormvariate(-6.5, 0.6)
            latencies.add(took_s)
            all_of_them.add(took_s)
        subject = SeriesSubject("version", f"model-{number // 3:03}", number % 3 + 1)
        rows.append(SubjectPoint(subject, _point(draw, requests, latencies, 1)))
    total = sum(row.point.succeeded for row in rows)
    server = _point(draw, total, all_of_them, arguments.versions)
    return (*rows, SubjectPoint(SeriesSubject("server"), server))


def _point(draw: random.Random, requests: int, latencies: Histogram, instances: int) -> SeriesPoint:
    compute_us = sum(int(draw.lognormvariate(6, 0.5)) for _ in range(requests))
    queue_us = sum(int(draw.lognormvariate(4, 1)) for _ in range(requests))
    packed = pack_latencies(latencies)
    return SeriesPoint(
        requests, {}, packed, queue_us, compute_us, requests, requests, compute_us, 0, instances
    )


def _poisson(draw: random.Random, mean: float) -> int:
    count, left = -1, mean
    while left >= 0:
        left -= draw.expovariate(1.0)
        count += 1
    return count


def _sizes(database: Database) -> tuple[int, int, int]:
    """Bytes packed in windows, minutes and quarters."""
    with database.reading() as session:
        windows = session.scalar(select(func.sum(func.length(SeriesWindowRow.payload)))) or 0
        size = func.sum(func.length(SeriesChunkRow.payload))
        rows = session.execute(select(SeriesChunkRow.level, size).group_by(SeriesChunkRow.level))
        chunks = {level: int(found) for level, found in rows}
    assert {MINUTES, QUARTERS} == {*CHUNKED}
    return int(windows), chunks.get(MINUTES.step_s, 0), chunks.get(QUARTERS.step_s, 0)


def _sealed_hours(database: Database) -> int:
    with database.reading() as session:
        starts = func.count(func.distinct(SeriesChunkRow.start))
        minutes = select(starts).where(SeriesChunkRow.level == MINUTES.step_s)
        return session.scalar(minutes) or 0


def _file_bytes(database: Database) -> int:
    """Pages in use: what was freed is used again."""
    with database.reading() as session:
        pages, free, size = (
            int(session.scalar(text(f"PRAGMA {name}")) or 0)
            for name in ("page_count", "freelist_count", "page_size")
        )
    return (pages - free) * size


def say(words: str) -> None:
    """At once, also into a pipe."""
    print(words, flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.series_growth", description=__doc__)
    parser.add_argument("--versions", type=int, default=600)
    parser.add_argument("--rate", type=float, default=100.0, help="requests a second, of them all")
    least = (DAY_S + HOUR_S) // HOUR_S + 1
    parser.add_argument("--hours", type=int, default=least, help=f"at least {least} for a day")
    return parser.parse_args()


if __name__ == "__main__":
    assert WINDOWS.step_s == WINDOW_S
    raise SystemExit(main())
