"""How each model did in the last minutes, as numbers for a table."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from admin_ui.page_context import PageContext
from admin_ui.services import ControlApiError
from control.clock import text_of

RECENT = timedelta(minutes=15)

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RecentTraffic:
    """Of `RECENT` until the last full minute. `error_percent` and `p99_ms` are None where nothing
    was answered."""

    requests_per_s: float
    error_percent: float | None
    p99_ms: float | None


async def recent_traffic(context: PageContext) -> dict[str, RecentTraffic]:
    """By model; nothing where this principal may not see it, or the database does not answer."""
    now = context.services.now()
    query = {"since": text_of(now - RECENT), "until": text_of(now), "points": "1"}
    try:
        page = await context.maybe("/series", query)
    except ControlApiError as refused:
        if refused.status != 503:
            raise
        return {}
    return recent_of(page["items"]) if page else {}


def recent_of(items: Iterable[Row]) -> dict[str, RecentTraffic]:
    """Of the series of models, of one point each. Pure."""
    found = {}
    for one in items:
        rate, share, p99_ms = (
            one[name][-1] for name in ("requests_per_s", "error_rate", "latency_ms_p99")
        )
        if rate:
            found[str(one["name"])] = RecentTraffic(
                rate, None if share is None else 100 * share, p99_ms
            )
    return found
