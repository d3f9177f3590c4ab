"""Charts of what was served: requests, failures, latency and, of language models, tokens."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from admin_ui.page_context import PageContext
from admin_ui.services import ControlApiError
from control.clock import text_of

POINTS = 120
MOST_LINES = 6
"""In one chart: those with the most requests; what cannot be told apart helps nobody."""
SHOWN_ROWS = 60
"""Of the table below a chart, the latest."""

RANGES: Mapping[str, timedelta] = {
    "15m": timedelta(minutes=15),
    "1h": timedelta(hours=1),
    "6h": timedelta(hours=6),
    "2d": timedelta(days=2),
    "7d": timedelta(days=7),
    "60d": timedelta(days=60),
}
USUAL = "1h"

Row = Mapping[str, Any]
Column = Sequence[float | None]


@dataclass(frozen=True, slots=True)
class TrafficChart:
    """`lines`: their labels; `series`: moments in seconds since the epoch, and a column for each
    line, as JSON; `rows`: the same for a table, newest first."""

    id: str
    caption: str
    unit: str
    lines: Sequence[str]
    series: str
    rows: Sequence[tuple[str, Sequence[float | None]]]

    @property
    def labels(self) -> str:
        return json.dumps(self.lines)


@dataclass(frozen=True, slots=True)
class TrafficCharts:
    """`range`: one of RANGES; `left_out`: how many series are in no chart."""

    range: str
    charts: Sequence[TrafficChart]
    step_s: int
    left_out: int
    ranges: Sequence[str] = tuple(RANGES)


async def traffic(visit: PageContext, **about: str) -> TrafficCharts | None:
    """`about`: what the series are of, as `/series` has it. None where this principal may not see
    them, or the database does not answer."""
    chosen = visit.query.get("range", "")
    span = chosen if chosen in RANGES else USUAL
    until = visit.services.now()
    asked = {
        "since": text_of(until - RANGES[span]),
        "until": text_of(until),
        "points": str(POINTS),
        **about,
    }
    try:
        page = await visit.maybe("/series", asked)
    except ControlApiError as refused:
        if refused.status != 503:
            raise
        return None
    return None if page is None else charts_of(page, span)


def charts_of(page: Row, span: str) -> TrafficCharts:
    """The charts of an answer of `/series`. Pure."""
    busy = [one for one in page["items"] if any(one["requests_per_s"])]
    items = sorted(busy, key=lambda one: -sum(rate or 0 for rate in one["requests_per_s"]))
    shown = items[:MOST_LINES]
    moments = page["at"]
    charts = [
        _chart("requests", "Requests a second", "", moments, _columns(shown, "requests_per_s")),
        _chart("errors", "Failed requests, percent", "%", moments, _errors(shown)),
        _chart("p99", "Latency, 99th percentile", "ms", moments, _columns(shown, "latency_ms_p99")),
        _chart("time", "Mean time in the queue, and computing", "ms", moments, _times(shown)),
    ]
    language = [(one["name"], one["language"]) for one in shown if one.get("language")]
    if language:
        tokens = {name: found["generated_tokens_per_s"] for name, found in language}
        first = {name: found["first_token_ms_p95"] for name, found in language}
        charts += [
            _chart("tokens", "Generated tokens a second", "", moments, tokens),
            _chart("first", "Time to first token, 95th percentile", "ms", moments, first),
        ]
    return TrafficCharts(span, charts, page["step_s"], len(items) - len(shown))


def _columns(items: Sequence[Row], field: str) -> dict[str, Column]:
    return {one["name"]: one[field] for one in items}


def _errors(items: Sequence[Row]) -> dict[str, Column]:
    return {
        one["name"]: [None if share is None else share * 100 for share in one["error_rate"]]
        for one in items
    }


def _times(items: Sequence[Row]) -> dict[str, Column]:
    """Two lines for each of the three busiest."""
    columns: dict[str, Column] = {}
    for one in items[: MOST_LINES // 2]:
        columns[f"{one['name']} queue"] = one["queue_ms"]
        columns[f"{one['name']} compute"] = one["compute_ms"]
    return columns


def _chart(
    name: str, caption: str, unit: str, moments: Sequence[str], columns: Mapping[str, Column]
) -> TrafficChart:
    seconds = [round(datetime.fromisoformat(at).timestamp()) for at in moments]
    rows = [
        (at, [column[number] for column in columns.values()])
        for number, at in enumerate(moments)
        if any(column[number] is not None for column in columns.values())
    ]
    return TrafficChart(
        f"traffic-{name}",
        caption,
        unit,
        list(columns),
        json.dumps([seconds, *columns.values()]),
        rows[: -SHOWN_ROWS - 1 : -1],
    )
