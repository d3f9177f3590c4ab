"""Experiments: planned, started, looked at as often as one likes, stopped, concluded."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import orjson

from admin_ui.page_context import PageContext
from admin_ui.pages.model import among, whole
from admin_ui.screens import FormAction, Screen, ScreenContent
from admin_ui.services import ControlApiError
from admin_ui.tables import cursor_page
from admin_ui.text import link
from control.experiments.views import ExperimentState

PATH = "/experiments/{experiment}"
EVENTS, MOST_CHARTS, MOST_POINTS = 30, 12, 200
STEPS = ("start", "stop", "conclude", "delete")

Row = Mapping[str, Any]


async def load_all(visit: PageContext) -> ScreenContent:
    page, document = await cursor_page(visit, "/experiments", ("route", "state"))
    routes = await visit.get("/routes", {"limit": "500"})
    return ScreenContent(
        document,
        page=page,
        route=visit.query.get("route", ""),
        state=visit.query.get("state", ""),
        states=[str(one) for one in ExperimentState],
        routes=[one["name"] for one in routes["items"]],
    )


_TOLD = ",".join(
    f"experiment.{what}" for what in ("created", "started", "stopped", "concluded", "deleted")
)
"""Not that it was measured: that is in the charts."""


async def load(visit: PageContext) -> ScreenContent:
    name = visit.path["experiment"]
    asked = {"newest": "true", "limit": str(EVENTS), "subject": f"experiment:{name}", "kind": _TOLD}
    one, analysis, events = await asyncio.gather(
        visit.get(PATH, experiment=name),
        visit.get(PATH + "/analysis", experiment=name),
        visit.get("/events", asked),
    )
    compared = analysis["comparisons"][:MOST_CHARTS]
    charts = await asyncio.gather(*(_chart(visit, name, row) for row in compared))
    return ScreenContent(
        {**one, "analysis": analysis},
        title=name,
        one=one,
        analysis=analysis,
        charts=charts,
        events=events["items"],
        acts={step: link(f"{PATH}/{step}", experiment=name) for step in STEPS},
    )


async def _chart(visit: PageContext, name: str, row: Row) -> dict[str, Any]:
    asked = {"metric": row["metric"], "arm": row["arm"]}
    found = await visit.get(PATH + "/series", asked, experiment=name)
    points = found["items"][-MOST_POINTS:]
    return {**asked, "points": points, "series": orjson.dumps(series_of(points)).decode()}


def series_of(points: Sequence[Row]) -> list[list[Any]]:
    """[units, lower, upper, estimate]: the interval over the units seen. Pure."""
    return [[one[key] for one in points] for key in ("units", "lower", "upper", "estimate")]


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


async def create(visit: PageContext) -> str:
    body: dict[str, Any] = {
        "name": visit.form.get("name", "").strip(),
        "route": visit.form.get("route", "").strip(),
        "metrics": read_metrics(visit.form.get("metrics", "")),
    }
    if visit.form.get("horizon", "").strip():
        body["horizon"] = whole(visit, "horizon")
    try:
        found = await visit.change("POST", "/experiments", body)
    except ControlApiError as refused:
        raise among(refused, ("name", "route", "metrics", "horizon")) from refused
    return link(PATH, experiment=found.document["name"])


def _step(verb: str, path: str, then: str = PATH) -> Callable[[PageContext], Awaitable[str]]:
    async def step(visit: PageContext) -> str:
        name = visit.path["experiment"]
        body = None
        if path.endswith("/conclude"):
            body = {"decision": visit.form.get("decision", "").strip()}
        await visit.change(verb, path, body, whole(visit, "revision"), experiment=name)
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
