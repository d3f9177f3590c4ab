"""Experiments: planned, started, looked at as often as one likes, stopped, concluded."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from admin_ui.page_context import PageContext
from admin_ui.pages.experiment_charts import KEY, interval_charts, scaled, unit_of
from admin_ui.pages.model import among, whole
from admin_ui.screens import FormAction, Screen, ScreenContent
from admin_ui.services import ControlApiError
from admin_ui.tables import cursor_page
from admin_ui.text import link
from admin_ui.traffic.load import TrafficCharts
from admin_ui.traffic.markers import markers_of
from admin_ui.traffic.ranges import TimeRange
from control.experiments.views import ExperimentState

PATH = "/experiments/{experiment}"
EVENTS, MOST_COMPARED, MOST_POINTS = 30, 12, 200
STEPS = ("start", "stop", "conclude", "delete")

Row = Mapping[str, Any]


async def load_all(context: PageContext) -> ScreenContent:
    page, document = await cursor_page(context, "/experiments", ("route", "state"))
    routes = await context.get("/routes", {"limit": "500"})
    return ScreenContent(
        document,
        page=page,
        route=context.query.get("route", ""),
        state=context.query.get("state", ""),
        states=[str(one) for one in ExperimentState],
        routes=[one["name"] for one in routes["items"]],
    )


_KINDS = ",".join(
    f"experiment.{what}" for what in ("created", "started", "stopped", "concluded", "deleted")
)
"""Not that it was measured: that is in the charts."""


async def load(context: PageContext) -> ScreenContent:
    name = context.path["experiment"]
    asked = {"newest": "true", "limit": str(EVENTS), "subject": f"experiment:{name}"}
    one, analysis, events = await asyncio.gather(
        context.get(PATH, experiment=name),
        context.get(PATH + "/analysis", experiment=name),
        context.get("/events", {**asked, "kind": _KINDS}),
    )
    kinds = {metric["name"]: metric["kind"] for metric in one["metrics"]}
    return ScreenContent(
        {**one, "analysis": analysis},
        title=name,
        one=one,
        analysis=analysis,
        compared=[_readable(row, kinds[row["metric"]]) for row in analysis["comparisons"]],
        traffic=await _charts(context, one, analysis, events["items"]),
        events=events["items"],
        acts={step: link(f"{PATH}/{step}", experiment=name) for step in STEPS},
    )


def _readable(row: Row, kind: str) -> dict[str, Any]:
    """Its numbers in the unit that its chart has."""
    numbers = {key: scaled(kind, row[key]) for key in ("estimate", "lower", "upper")}
    return {**row, **numbers, "unit": unit_of(kind)}


async def _charts(
    context: PageContext, one: Row, analysis: Row, events: Sequence[Row]
) -> TrafficCharts | None:
    """None before it has run."""
    if not one["started_at"]:
        return None
    pairs = [(row["metric"], row["arm"]) for row in analysis["comparisons"][:MOST_COMPARED]]
    changes = {"newest": "true", "limit": str(EVENTS), "kind": "route.*"}
    found, moved = await asyncio.gather(
        asyncio.gather(*(_points(context, one["name"], *pair) for pair in pairs)),
        context.maybe("/events", {**changes, "subject": f"route:{one['route']}"}),
    )
    series = dict(zip(pairs, found, strict=True))
    begun = datetime.fromisoformat(one["started_at"])
    over = (
        datetime.fromisoformat(one["stopped_at"]) if one["stopped_at"] else context.services.now()
    )
    marked = [*events, *(moved["items"] if moved else [])]
    markers = markers_of(marked, int(begun.timestamp()), int(over.timestamp()) + 1, 1)
    charts = interval_charts(one["metrics"], series, analysis["control"])
    return TrafficCharts(TimeRange(KEY, begun, over), charts, 1, 0, context.at, markers)


async def _points(context: PageContext, name: str, metric: str, arm: str) -> list[Row]:
    found = await context.get(PATH + "/series", {"metric": metric, "arm": arm}, experiment=name)
    points: list[Row] = found["items"][-MOST_POINTS:]
    return points


def read_metrics(text: str) -> list[dict[str, Any]]:
    """Lines of NAME KIND DIRECTION EFFECT [QUANTILE]. Raises ControlApiError naming the line."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            name, kind, direction, effect, *rest = line.split()
            metric: dict[str, Any] = {"name": name, "kind": kind, "direction": direction}
            metric["minimal_effect"] = float(effect)
            if rest:
                (metric["quantile"],) = (float(one) for one in rest)
        except ValueError:
            form = "NAME KIND DIRECTION EFFECT, e.g. conversion proportion up 0.01"
            wrong = f"line {number}: '{line.strip()[:80]}' is no metric; write {form}"
            raise ControlApiError(422, "invalid", wrong, "metrics") from None
        found.append(metric)
    return found


async def create(context: PageContext) -> str:
    body: dict[str, Any] = {
        "name": context.form.get("name", "").strip(),
        "route": context.form.get("route", "").strip(),
        "metrics": read_metrics(context.form.get("metrics", "")),
    }
    if context.form.get("horizon", "").strip():
        body["horizon"] = whole(context, "horizon")
    try:
        found = await context.change("POST", "/experiments", body)
    except ControlApiError as refused:
        raise among(refused, ("name", "route", "metrics", "horizon")) from refused
    return link(PATH, experiment=found.document["name"])


def _step(verb: str, path: str, then: str = PATH) -> Callable[[PageContext], Awaitable[str]]:
    async def step(context: PageContext) -> str:
        name = context.path["experiment"]
        body = None
        if path.endswith("/conclude"):
            body = {"decision": context.form.get("decision", "").strip()}
        await context.change(verb, path, body, whole(context, "revision"), experiment=name)
        return link(then, experiment=name)

    return step


SCREENS = (
    Screen(
        path="/experiments",
        title="Experiments",
        menu="Experiments",
        docs="experiments",
        template="experiments.html",
        load=load_all,
        live=("experiment.*",),
    ),
    Screen(
        path=PATH,
        title="Experiment",
        template="experiment.html",
        load=load,
        under="/experiments",
        live=("experiment.*",),
        live_every_s=5.0,
        about=lambda path: f"experiment:{path['experiment']}",
        personal=True,
    ),
)
ACTS = (
    FormAction(path="/experiments", screen="/experiments", run=create),
    FormAction(path=PATH + "/start", screen=PATH, run=_step("POST", PATH + "/start")),
    FormAction(path=PATH + "/stop", screen=PATH, run=_step("POST", PATH + "/stop")),
    FormAction(path=PATH + "/conclude", screen=PATH, run=_step("POST", PATH + "/conclude")),
    FormAction(
        path=PATH + "/delete",
        screen=PATH,
        run=_step("DELETE", PATH, "/experiments"),
        typed_name="experiment",
    ),
)
