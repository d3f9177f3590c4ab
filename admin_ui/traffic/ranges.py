"""The stretch of time that the charts of a page show, from the page's query. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

RANGES: Mapping[str, timedelta] = {
    "15m": timedelta(minutes=15),
    "1h": timedelta(hours=1),
    "6h": timedelta(hours=6),
    "2d": timedelta(days=2),
    "7d": timedelta(days=7),
    "60d": timedelta(days=60),
}
USUAL = "1h"
LONGEST, SHORTEST = timedelta(days=60), timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class TimeRange:
    """`name`: one of RANGES, which ends now; "" where both ends were given."""

    name: str
    since: datetime
    until: datetime

    @property
    def key(self) -> str:
        """The same for all that are drawn over the same axis."""
        return self.name or f"{self.since:%Y%m%d%H%M%S}-{self.until:%Y%m%d%H%M%S}"


def range_of(query: Mapping[str, str], now: datetime) -> TimeRange:
    """`range`, or `since` and `until`; what cannot be meant is as if it were not there."""
    given = _explicit_range(query)
    if given is not None:
        return given
    name = query.get("range", "")
    name = name if name in RANGES else USUAL
    return TimeRange(name, now - RANGES[name], now)


def _explicit_range(query: Mapping[str, str]) -> TimeRange | None:
    try:
        since, until = (datetime.fromisoformat(query[name]) for name in ("since", "until"))
    except (KeyError, ValueError):
        return None
    if since.tzinfo is None or until.tzinfo is None or until - since > LONGEST:
        return None
    return TimeRange("", since, until) if until - since >= SHORTEST else None
