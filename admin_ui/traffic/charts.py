"""What is drawn of an answer of `/series`: a chart for each question, a line for each series. Pure.

`compared` draws a line for each of several series, `single` all that is known of one.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

MOST_LINES = 6
"""In one chart; what cannot be told apart helps nobody."""
SHOWN_ROWS = 30
"""Of the table below a chart, the latest."""

STABLE = "stable"
"""The arm that a rollout compares the other with."""

LIMIT = (3, True)
"""The style of a line that another should stay below."""

_OF_REQUESTS = ("requests", "errors", "p99", "latency")
"""Charts whose points are of requests, which can be looked for."""

Row = Mapping[str, Any]
Column = Sequence[float | None]
Lines = Mapping[str, Column]


@dataclass(frozen=True, slots=True)
class ChartPeak:
    """The highest point of a chart; `to`: the slowest requests of that point, "" for none;
    `queue_ms` and `compute_ms`: the means of the same line then, None where they are not known."""

    line: str
    moment: str
    value: float
    to: str
    queue_ms: float | None = None
    compute_ms: float | None = None


@dataclass(frozen=True, slots=True)
class TrafficChart:
    """`lines`: their labels; `at`: when the points begin, and `columns` a number for each, `None`
    where nothing is known. `requests`: of each line, the query that finds its requests.

    `styles`: of each line, the number of its dashes and colour, and whether it is thin, or () for
    each its own; `bands`: pairs of lines between which the chart is shaded; `stepped`: each value
    holds since the one before."""

    id: str
    caption: str
    unit: str
    lines: Sequence[str]
    at: Sequence[str]
    columns: Sequence[Column]
    requests: Mapping[str, str]
    peak: ChartPeak | None = None
    styles: Sequence[tuple[int, bool]] = ()
    bands: Sequence[tuple[int, int]] = ()
    stepped: bool = False

    @property
    def labels(self) -> str:
        return json.dumps(self.lines)

    @property
    def series(self) -> str:
        """Moments in seconds since the epoch, then the columns, as JSON."""
        seconds = [round(datetime.fromisoformat(at).timestamp(), 1) for at in self.at]
        return json.dumps([[int(at) if at.is_integer() else at for at in seconds], *self.columns])

    @property
    def drawing(self) -> str:
        """Styles, bands and steps, as JSON; "" where they are the usual ones."""
        if not (self.styles or self.bands or self.stepped):
            return ""
        return json.dumps({"styles": self.styles, "bands": self.bands, "stepped": self.stepped})

    @property
    def queries(self) -> str:
        """Of each line's requests, in order, as JSON; "" where none can be looked for."""
        return json.dumps([self.requests[one] for one in self.lines]) if self.requests else ""

    @property
    def rows(self) -> list[tuple[str, list[float | None]]]:
        """The points of which anything is known, newest first."""
        known = [row for row in self.whole if any(value is not None for value in row[1])]
        return known[: -SHOWN_ROWS - 1 : -1]

    @property
    def whole(self) -> list[tuple[str, list[float | None]]]:
        """All points, oldest first."""
        columns = self.columns
        return [(at, [column[number] for column in columns]) for number, at in enumerate(self.at)]


def compared(page: Row, requests: Callable[[str], Row] | None = None) -> list[TrafficChart]:
    """A line for each series that had requests, the busiest. `requests`: what finds the requests
    of the series with a name."""
    return _charts(page, busy(page["items"]), requests, "Memory of workers")


def of_servers(page: Row) -> list[TrafficChart]:
    """A line for each server, also for one that had no requests."""
    return _charts(page, page["items"], None, "Memory of the gateway and its workers")


def _charts(
    page: Row, items: Sequence[Row], requests: Callable[[str], Row] | None, memory: str
) -> list[TrafficChart]:
    slowest = sorted(items, key=lambda one: -_mean(one["latency_ms_p99"]))
    charts = [
        ("requests", "Requests a second", "", _columns(_top(items), "requests_per_s")),
        ("errors", "Failed requests, percent", "%", _percent(_top(items), "error_rate")),
        ("reasons", "Failures a second by reason", "", _reasons(_top(items))),
        ("p99", "Latency, 99th percentile", "ms", _columns(_top(slowest), "latency_ms_p99")),
        ("time", "Mean time in the queue, and computing", "ms", _times(items)),
        ("busy", "Instances that execute, on average", "", _columns(_top(items), "instances_busy")),
        ("memory", memory, "", _nonzero(_columns(_top(items), "memory_bytes"))),
        (
            "lag",
            "Longest delay of the event loop",
            "ms",
            _nonzero(_columns(_top(items), "loop_lag_ms")),
        ),
        *_sequence_charts(_top(items)),
        *_language_charts(_top(items)),
    ]
    made = [_chart(page, *one, requests) for one in charts if one[3]]
    return [_with_times(one, {item["name"]: item for item in items}) for one in made]


def single(page: Row, requests: Row | None = None) -> list[TrafficChart]:
    """All that is known of the page's only series."""
    if not (items := busy(page["items"])):
        return []
    one = items[0]
    charts = [
        (
            "requests",
            "Requests a second",
            "",
            {"all": one["requests_per_s"], **one["failed_per_s"]},
        ),
        ("errors", "Failed requests, percent", "%", {"failed": _hundred(one["error_rate"])}),
        ("latency", "Latency by percentile", "ms", _quantiles(one, "latency_ms_p{}", (50, 95, 99))),
        (
            "time",
            "Mean time in the queue, and computing",
            "ms",
            {"queue": one["queue_ms"], "compute": one["compute_ms"]},
        ),
        ("pending", "Requests that wait", "", {"waiting": one["pending"]}),
        ("rows", "Rows in an execution, on average", "", {"rows": one["batch_rows"]}),
        (
            "busy",
            "Instances: executing on average, and ready",
            "",
            {"executing": one["instances_busy"], "ready": one["instances"]},
        ),
        ("memory", "Memory of workers", "", _nonzero({"memory": one["memory_bytes"]})),
        *_sequence_details(one.get("sequences")),
        *_language_details(one.get("language")),
    ]
    found = None if requests is None else (lambda _name: requests)
    made = [_chart(page, *chart, found) for chart in charts if chart[3]]
    return [_with_times(chart, dict.fromkeys(chart.lines, one)) for chart in made]


def busy(items: Iterable[Row]) -> list[Row]:
    """Those that had any request, the busiest first."""
    found = [one for one in items if any(one["requests_per_s"])]
    return sorted(found, key=lambda one: -sum(rate or 0 for rate in one["requests_per_s"]))


def merged_by_server(pages: Mapping[str, Row]) -> dict[str, Any]:
    """One page with a series for each server, of pages that have one series each."""
    first = next(iter(pages.values()))
    items = [{**one, "name": server} for server, page in pages.items() for one in page["items"]]
    return {**first, "items": items}


def _top(items: Sequence[Row]) -> list[Row]:
    """As many as one chart draws, in the order of their names, so that each keeps its line."""
    return sorted(items[:MOST_LINES], key=lambda one: _natural(one["name"]))


def _natural(name: str) -> list[tuple[bool, int, str]]:
    """ "v10" after "v9"; first the arm that a rollout's charts have first, in the same colour."""
    parts = re.split(r"(\d+)", name)
    found = [(part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in parts]
    return [(name != STABLE, 0, ""), *found]


def _columns(items: Sequence[Row], field: str) -> dict[str, Column]:
    return {one["name"]: one[field] for one in items if field in one}


def _percent(items: Sequence[Row], field: str) -> dict[str, Column]:
    return {one["name"]: _hundred(one[field]) for one in items}


def _hundred(column: Column) -> Column:
    return [None if share is None else share * 100 for share in column]


def _reasons(items: Sequence[Row]) -> dict[str, Column]:
    """None where nothing failed."""
    found = {
        f"{one['name']} {reason}": column
        for one in items
        for reason, column in one["failed_per_s"].items()
        if any(column)
    }
    return dict(list(found.items())[:MOST_LINES])


def _times(items: Sequence[Row]) -> dict[str, Column]:
    """Two lines for each of the three busiest."""
    columns: dict[str, Column] = {}
    for one in sorted(items[: MOST_LINES // 2], key=lambda one: _natural(one["name"])):
        columns[f"{one['name']} queue"] = one["queue_ms"]
        columns[f"{one['name']} compute"] = one["compute_ms"]
    return columns


def _nonzero(columns: Mapping[str, Column]) -> dict[str, Column]:
    """Those that are anything but nothing."""
    return {name: column for name, column in columns.items() if any(column)}


def _quantiles(one: Row, field: str, percents: Sequence[int]) -> dict[str, Column]:
    return {f"p{percent}": one[field.format(percent)] for percent in percents}


def _sequence_charts(items: Sequence[Row]) -> list[tuple[str, str, str, Lines]]:
    found = [{"name": one["name"], **one["sequences"]} for one in items if one.get("sequences")]
    return [("sequences", "Sequences that live", "", _columns(found, "live"))] if found else []


def _sequence_details(found: Row | None) -> list[tuple[str, str, str, Lines]]:
    if not found:
        return []
    slots = {"live": found["live"], "backlog": found["backlog"], "slots": found["slots"]}
    ended = {"expired idle": found["expired_per_s"], "lost": found["lost_per_s"]}
    return [
        ("sequences", "Sequences: live, in the backlog, and slots", "", slots),
        ("oldest", "Age of the oldest sequence", "s", {"oldest": found["oldest_s"]}),
        (
            "begun",
            "Sequences a second: started, expired and lost",
            "",
            {"started": found["started_per_s"], **ended},
        ),
    ]


def _language_charts(items: Sequence[Row]) -> list[tuple[str, str, str, Lines]]:
    found = [{"name": one["name"], **one["language"]} for one in items if one.get("language")]
    if not found:
        return []
    return [
        ("tokens", "Generated tokens a second", "", _columns(found, "generated_tokens_per_s")),
        (
            "first",
            "Time to first token, 95th percentile",
            "ms",
            _columns(found, "first_token_ms_p95"),
        ),
        (
            "between",
            "Time between tokens, 95th percentile",
            "ms",
            _columns(found, "between_tokens_ms_p95"),
        ),
        ("kv", "KV blocks in use, percent", "%", _percent(found, "kv_use")),
    ]


def _language_details(found: Row | None) -> list[tuple[str, str, str, Lines]]:
    if not found:
        return []
    return [
        (
            "tokens",
            "Tokens a second",
            "",
            {"generated": found["generated_tokens_per_s"], "prompt": found["prompt_tokens_per_s"]},
        ),
        (
            "first",
            "Time to first token by percentile",
            "ms",
            _quantiles(found, "first_token_ms_p{}", (50, 95)),
        ),
        (
            "between",
            "Time between tokens by percentile",
            "ms",
            _quantiles(found, "between_tokens_ms_p{}", (50, 95)),
        ),
        (
            "kv",
            "KV blocks in use, and prompt tokens from the prefix cache, percent",
            "%",
            {
                "KV in use": _hundred(found["kv_use"]),
                "from the cache": _hundred(found["prefix_hit_share"]),
            },
        ),
        (
            "running",
            "Requests that run, and wait",
            "",
            {"running": found["running"], "waiting": found["waiting"]},
        ),
    ]


def _chart(
    page: Row,
    name: str,
    caption: str,
    unit: str,
    lines: Lines,
    requests: Callable[[str], Row] | None,
) -> TrafficChart:
    if name == "memory":
        unit, lines = _in_mebibytes(lines)
    finders = {}
    if requests is not None and name in _OF_REQUESTS:
        finders = {one: urlencode(requests(one)) for one in lines}
    chart = TrafficChart(
        f"traffic-{name}", caption, unit, list(lines), page["at"], list(lines.values()), finders
    )
    return replace(chart, peak=_peak(chart, page["step_s"]))


def _with_times(chart: TrafficChart, series: Mapping[str, Row]) -> TrafficChart:
    """Its peak with where the time went: `series` by the chart's lines."""
    peak = chart.peak
    if peak is None or peak.line not in series:
        return chart
    at = chart.at.index(peak.moment)
    queue, compute = (series[peak.line][name][at] for name in ("queue_ms", "compute_ms"))
    return replace(chart, peak=replace(peak, queue_ms=queue, compute_ms=compute))


def _in_mebibytes(lines: Lines) -> tuple[str, dict[str, Column]]:
    unit, size = ("GiB", 2**30) if _highest(lines) >= 2**33 else ("MiB", 2**20)
    return unit, {
        name: [None if value is None else value / size for value in column]
        for name, column in lines.items()
    }


def _highest(lines: Lines) -> float:
    return max((value or 0 for column in lines.values() for value in column), default=0)


def _peak(chart: TrafficChart, step_s: int) -> ChartPeak | None:
    """Of a chart of latencies."""
    if chart.id not in ("traffic-p99", "traffic-latency"):
        return None
    found = [
        (value, line, number)
        for line, column in zip(chart.lines, chart.columns, strict=True)
        for number, value in enumerate(column)
        if value is not None
    ]
    if not found:
        return None
    value, line, number = max(found)
    return ChartPeak(line, chart.at[number], value, _slowest(chart, line, number, step_s))


def _slowest(chart: TrafficChart, line: str, number: int, step_s: int) -> str:
    if not chart.requests:
        return ""
    begin = datetime.fromisoformat(chart.at[number]).timestamp()
    within = {"order": "slowest", "since": _text(begin), "until": _text(begin + max(step_s, 60))}
    return f"/requests?{chart.requests[line]}&{urlencode(within)}"


def _text(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _mean(column: Column) -> float:
    known = [value for value in column if value is not None]
    return sum(known) / len(known) if known else 0.0
