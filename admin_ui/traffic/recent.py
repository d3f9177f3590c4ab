"""How each model did in the last minutes, as numbers for a table."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from admin_ui.page_context import PageContext
from admin_ui.services import ControlApiError
from control.clock import text_of
from control.series.points import CANCELLED

RECENT = timedelta(minutes=15)
POINTS = 2
"""The fewest that the API gives."""

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RecentTraffic:
    """`error_percent` and `p99_ms` are None where nothing was answered; p99 is that of the slower
    half of the time."""

    requests_per_s: float
    error_percent: float | None
    p99_ms: float | None


async def recent_traffic(visit: PageContext) -> dict[str, RecentTraffic]:
    """By model; nothing where this principal may not see it, or the database does not answer."""
    now = visit.services.now()
    query = {"since": text_of(now - RECENT), "until": text_of(now), "points": str(POINTS)}
    try:
        page = await visit.maybe("/series", query)
    except ControlApiError as refused:
        if refused.status != 503:
            raise
        return {}
    return recent_of(page["items"]) if page else {}


def recent_of(items: Iterable[Row]) -> dict[str, RecentTraffic]:
    """Of the series of models. Pure."""
    found = {}
    for one in items:
        rates = _numbers(one["requests_per_s"])
        if not any(rates):
            continue
        failed = sum(
            sum(_numbers(column))
            for reason, column in one["failed_per_s"].items()
            if reason != CANCELLED
        )
        quantiles = _numbers(one["latency_ms_p99"])
        found[str(one["name"])] = RecentTraffic(
            sum(rates) / len(rates),
            100 * failed / sum(rates),
            max(quantiles) if quantiles else None,
        )
    return found


def _numbers(column: Sequence[float | None]) -> list[float]:
    return [value for value in column if value is not None]
