"""The charts of a page, asked for as whoever looks."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from admin_ui.event_text import SHORT
from admin_ui.page_context import PageContext
from admin_ui.services import ControlApiError
from admin_ui.tables import with_query
from admin_ui.traffic.charts import (
    TrafficChart,
    busy,
    compared,
    merged_by_server,
    of_servers,
    single,
)
from admin_ui.traffic.markers import KINDS, LOADS, ChartMarker, is_about, markers_of
from admin_ui.traffic.ranges import RANGES, TimeRange, range_of
from control.access.scopes import Action
from control.clock import text_of

POINTS = 120
EVENTS = 100
MOST_SERVERS = 6
VERSION = "version "
KEPT_S = 900
"""How long a gateway keeps its requests."""
ARRIVES_S = 2.0
"""After its end a window is in the database, unless much is going on."""
LATE_LOOK_S = 5.0
"""Until the next look at a point that has not arrived in that time."""
LONGEST_LOOK_S = 60
"""Between two looks: ages are told in minutes."""
FIGURES_S = 10.0
"""Between two looks at what the gateway has now: instances, memory, sequences."""

Row = Mapping[str, Any]
Finder = Callable[[str], Row]


@dataclass(frozen=True, slots=True)
class TrafficCharts:
    """`left_out`: how many series are in no chart; `at`: the page they are on; `failed`: what is
    red, from when to when in seconds since the epoch."""

    within: TimeRange
    charts: Sequence[TrafficChart]
    step_s: int
    left_out: int
    at: str
    markers: Sequence[ChartMarker] = ()
    kept_s: int = KEPT_S
    failed: tuple[int, int] | None = None

    @property
    def ranges(self) -> list[tuple[str, str]]:
        """Each range's name, and the link that shows it."""
        gone = {"since": "", "until": ""}
        return [(name, with_query(self.at, {"range": name, **gone})) for name in RANGES]

    @property
    def marks(self) -> list[tuple[int, str, bool]]:
        return [(one.at, one.letter, one.bad) for one in self.markers]

    @property
    def next_look_s(self) -> float:
        """From when they were asked for until there is a point more, or the last one that has not
        arrived yet."""
        if not self.within.name:
            return LONGEST_LOOK_S
        if self.step_s <= LONGEST_LOOK_S and self._is_late():
            return LATE_LOOK_S
        period_s = min(self.step_s, LONGEST_LOOK_S)
        return period_s - (self.within.until.timestamp() - ARRIVES_S) % period_s

    def _is_late(self) -> bool:
        """Nothing is known of the last point, and something of the one before."""
        columns = [column[-2:] for one in self.charts for column in one.columns]
        return bool(columns) and all(
            any(column[n] is not None for column in columns if len(column) == 2) is known
            for n, known in enumerate((True, False))
        )

    def chart(self, name: str) -> TrafficChart | None:
        return next((one for one in self.charts if one.id == name), None)


def next_look_s(traffic: TrafficCharts | None, has_figures: bool = False) -> float | None:
    """When a page with these charts has more to show, None for as often as its screen says.
    `has_figures`: it shows what the gateway has now, too."""
    if traffic is None:
        return None
    return min(traffic.next_look_s, FIGURES_S) if has_figures else traffic.next_look_s


async def model_traffic(context: PageContext, model: str) -> TrafficCharts | None:
    """A line for each version. None where this principal may not see them, or the database does
    not answer; so do the others."""
    subjects = f"model:{model},alias:{model}@*,route:{model},rollout:*"

    def requests(line: str) -> Row:
        return {"model": model, "version": line.removeprefix(VERSION)}

    return await _lines(context, {"model": model}, requests, subjects, model)


async def version_traffic(context: PageContext, model: str, version: str) -> TrafficCharts | None:
    """All that is known of one version."""
    asked = {"model": model, "version": version, "by": "version"}
    found = await _read(context, asked, f"model:{model},alias:{model}@*,route:{model},rollout:*")
    if found is None:
        return None
    page, events, within = found
    requests = {"model": model, "version": version} if context.may(Action.OPERATE, model) else None
    return _assemble(context, page, single(page, requests), _of_route(events, model), within, 0)


async def route_traffic(context: PageContext, route: Row) -> TrafficCharts | None:
    """A line for each arm."""
    models = {arm["name"]: arm["model"] for arm in route["arms"]}

    def requests(arm: str) -> Row:
        return {"arm": arm, **({"model": models[arm]} if arm in models else {})}

    name = route["name"]
    return await _lines(context, {"route": name}, requests, f"route:{name},rollout:*", name)


async def yard_traffic(context: PageContext) -> TrafficCharts | None:
    """A line for each model."""
    return await _lines(context, {}, lambda model: {"model": model}, "", "")


async def server_traffic(context: PageContext, servers: Sequence[str]) -> TrafficCharts | None:
    """A line for each server, `MOST_SERVERS` at most."""
    within = range_of(context.query, context.services.now())
    shown = list(servers)[:MOST_SERVERS]
    pages = await asyncio.gather(
        *(_series(context, within, {"by": "server", "server": server}) for server in shown)
    )
    found = {
        server[:SHORT]: page for server, page in zip(shown, pages, strict=True) if page is not None
    }
    if not found:
        return None
    whole = merged_by_server(found)
    return _assemble(context, whole, of_servers(whole), [], within, len(servers) - len(shown))


async def _lines(
    context: PageContext, asked: dict[str, str], requests: Finder, subjects: str, about: str
) -> TrafficCharts | None:
    found = await _read(context, asked, subjects)
    if found is None:
        return None
    page, events, within = found
    name = asked.get("model", "")
    if name:
        page = {**page, "items": [{**one, "name": VERSION + one["name"]} for one in page["items"]]}
    charts = compared(page, requests if context.may(Action.OPERATE, name) else None)
    left_out = max(0, len(busy(page["items"])) - len(charts[0].lines)) if charts else 0
    return _assemble(context, page, charts, _of_route(events, about), within, left_out)


async def pair_traffic(
    context: PageContext, name: str, pair: tuple[str, str]
) -> tuple[TrafficCharts | None, tuple[Row | None, Row | None], int]:
    """The charts of two of a model's versions, aliases or arms, the series of each, and a point's
    span; targets as the playground names them."""
    within = range_of(context.query, context.services.now())
    asked = await asyncio.gather(*(_of_target(context, within, name, one) for one in pair))
    pages = [page for page in asked if page is not None]
    if len(pages) < len(pair):
        return None, (None, None), 1
    found = [page["items"][0] if page["items"] else None for page in pages]
    items = [
        {**one, "name": target.replace(":", " ", 1)}
        for one, target in zip(found, pair, strict=True)
        if one is not None
    ]
    page = {**pages[0], "items": items}
    subjects = f"model:{name},alias:{name}@*,route:{name},rollout:*"
    changes = _of_route(await _events(context, subjects), name)
    charts = _assemble(context, page, compared(page), changes, within, 0)
    return charts, (found[0], found[1]), page["step_s"]


async def _of_target(context: PageContext, within: TimeRange, name: str, target: str) -> Row | None:
    """The series of one, as the only item."""
    kind, _, value = target.partition(":")
    if kind == "arm":
        page = await _series(context, within, {"route": name})
        if page is None:
            return None
        return {**page, "items": [one for one in page["items"] if one["name"] == value]}
    if kind == "alias":
        model = await context.maybe("/models/{model}", model=name)
        value = str((model or {"aliases": {}})["aliases"].get(value, ""))
    if not value.isdecimal():
        return None
    return await _series(context, within, {"model": name, "by": "version", "version": value})


def _of_route(events: Sequence[Row], about: str) -> list[Row]:
    return [one for one in events if not about or is_about(one, about)]


async def _read(
    context: PageContext, asked: dict[str, str], subjects: str
) -> tuple[Row, Sequence[Row], TimeRange] | None:
    """The series, and the events beside them."""
    within = range_of(context.query, context.services.now())
    page, events = await asyncio.gather(_series(context, within, asked), _events(context, subjects))
    return None if page is None else (page, events, within)


async def _events(context: PageContext, subjects: str) -> list[Row]:
    """What there is to mark; of all subjects where `subjects` is ""."""
    usual = {"newest": "true", "limit": str(EVENTS)} | ({"subject": subjects} if subjects else {})
    pages = await asyncio.gather(
        *(context.maybe("/events", {**usual, "kind": kinds}) for kinds in (KINDS, LOADS))
    )
    return [one for page in pages if page for one in page["items"]]


async def _series(context: PageContext, within: TimeRange, asked: dict[str, str]) -> Row | None:
    ends = {"since": text_of(within.since), "until": text_of(within.until)}
    try:
        page: Row | None = await context.maybe("/series", {**ends, "points": str(POINTS), **asked})
    except ControlApiError as refused:
        if refused.status != 503:
            raise
        return None
    return page


def _assemble(
    context: PageContext,
    page: Row,
    charts: Sequence[TrafficChart],
    events: Sequence[Row],
    within: TimeRange,
    left_out: int,
) -> TrafficCharts:
    since, until = datetime.fromisoformat(page["since"]).timestamp(), within.until.timestamp()
    markers = markers_of(events, int(since), int(until) + 1, page["step_s"]) if charts else []
    return TrafficCharts(within, charts, page["step_s"], left_out, context.at, markers)
