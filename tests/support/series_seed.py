"""An hour of time series in the database of a yard, as its gateway would have sent them."""

import math
import time

from msgspec.structs import replace

from control.series.points import (
    WINDOW_S,
    SeriesPoint,
    SeriesSubject,
    SeriesWindow,
    SubjectPoint,
    pack_latencies,
    side_by_side,
)
from control.series.recording import store
from control.sql.database import SYSTEM, Database
from control.statistics.histogram import Histogram
from support.yard import Yard

HOUR_S = 3600
PEAK_S = 300
"""How long ago version 3 was slow for a window."""


def seed_series(yard: Yard, seconds: int = HOUR_S, model: str = "digits") -> None:
    """Versions 1 to 3 of a model, and both arms of the route `shop`: 1 is quick, 3 fails now and
    then and was slow once."""
    database = Database(f"sqlite:///{yard.state}/modelyard.db")
    server = yard.api("GET", "/server")[1]["id"]
    now = int(time.time()) // WINDOW_S * WINDOW_S
    try:
        with database.change(SYSTEM) as tx:
            for at in range(now - seconds, now, WINDOW_S):
                store(tx, SeriesWindow(server, "seed", at, _rows(at, now, model)))
    finally:
        database.close()


def _rows(at: int, now: int, model: str) -> tuple[SubjectPoint, ...]:
    points = {version: _point(version, at, now) for version in (1, 2, 3)}
    versions = [
        SubjectPoint(SeriesSubject("version", model, version), point)
        for version, point in points.items()
    ]
    arms = [
        SubjectPoint(SeriesSubject("arm", "shop", 0, arm), points[version])
        for arm, version in (("stable", 1), ("next", 3))
    ]
    whole = replace(side_by_side(list(points.values())), loop_lag_us=2000 + at % 700)
    return (*versions, *arms, SubjectPoint(SeriesSubject("server"), whole))


def _point(version: int, at: int, now: int) -> SeriesPoint:
    wave = 1 + math.sin(at / 600 + version)
    succeeded = round(200 / version * (0.5 + wave))
    slow = version == 3 and now - PEAK_S <= at < now - PEAK_S + WINDOW_S
    latency = Histogram()
    for number in range(succeeded):
        seconds = 0.004 * version * (1 + number / succeeded) * (20 if slow else 1)
        latency.add(seconds)
    failed = {"BACKEND": round(2 * wave)} if version == 3 else {}
    return SeriesPoint(
        succeeded,
        failed,
        pack_latencies(latency),
        queue_us=round(succeeded * 900 * wave),
        compute_us=succeeded * 3000 * version * (20 if slow else 1),
        rows=succeeded * 2,
        batches=succeeded,
        busy_us=round(4e6 / version * wave),
        pending=version,
        instances=2,
        memory_bytes=(64 + 16 * version) * 2**20,
    )
