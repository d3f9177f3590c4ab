"""Drift of a model: a small chart for each feature, the reference, and what is watched."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from admin_ui.page_context import PageContext
from admin_ui.screens import FormAction, Screen, ScreenContent
from admin_ui.services import ControlApiError
from admin_ui.tables import DownloadTable
from admin_ui.text import link
from control.drift.terms import DriftTerms

PATH = "/models/{model}/drift"
REFERENCE, STOP = PATH + "/reference", PATH + "/stop"
WINDOWS = (
    ("600", "10 minutes"),
    ("3600", "an hour"),
    ("21600", "6 hours"),
    ("86400", "a day"),
    ("604800", "a week"),
)
STRETCHES = (
    ("3600", "the last hour"),
    ("86400", "the last day"),
    ("604800", "the last week"),
    ("2592000", "the last 30 days"),
)
NUMBERS = {"psi": float, "ks": float, "min_sample": int, "percent": float, "per_second": float}
_USUAL = DriftTerms()

WIDTH, HEIGHT, FOOT = 260, 96, 16
"""Of a chart, in its own units; below `HEIGHT` is room for the ends of its axis."""

ALL = "drift"
"""The table of all features."""


@dataclass(frozen=True, slots=True)
class DriftBar:
    """A bin as it is drawn: the current share as a bar, the reference as a line across it."""

    x: float
    width: float
    y: float
    height: float


@dataclass(frozen=True, slots=True)
class DriftChart:
    """A feature's chart. `line`: the path of the reference; `most`: the share at the top; `first`
    and `last`: the ends of the axis."""

    bars: Sequence[DriftBar]
    line: str
    most: float
    first: str
    last: str


def chart_of(bins: Sequence[Mapping[str, Any]]) -> DriftChart | None:
    """None of no bins. Bins are as wide as one another: of numbers each holds about a tenth of the
    reference. Pure."""
    if not bins:
        return None
    most = max(max(one["reference"], one["current"]) for one in bins) or 1.0
    step = WIDTH / len(bins)
    bars, line = [], []
    for number, one in enumerate(bins):
        x, height = number * step, HEIGHT * one["current"] / most
        bars.append(DriftBar(round(x + 1, 1), round(step - 2, 1), *_top(height)))
        level = round(HEIGHT - HEIGHT * one["reference"] / most, 1)
        line.append(f"{'M' if not number else 'L'}{x:.1f} {level} H{x + step:.1f}")
    numeric = [one for one in bins if one["low"] is not None]
    first = f"{numeric[0]['low']:.4g}" if numeric else str(bins[0]["name"])
    last = f"{numeric[-1]['high']:.4g}" if numeric else str(bins[-1]["name"])
    return DriftChart(bars, " ".join(line), most, first[:22], last[:22] if len(bins) > 1 else "")


def _top(height: float) -> tuple[float, float]:
    return round(HEIGHT - height, 1), round(height, 1)


async def load(context: PageContext) -> ScreenContent:
    name = context.path["model"]
    report = await context.maybe("/drift/{model}", model=name)
    rows = await context.every("/loads")
    numbers = sorted({one["version"] for one in rows if one["model"] == name and one["version"]})
    numbers.reverse()
    common: dict[str, Any] = {
        "name": name,
        "numbers": numbers,
        "windows": WINDOWS,
        "stretches": STRETCHES,
        "usual": _usual(report["watch"] if report else None),
        "act": link(PATH, model=name),
        "refer": link(REFERENCE, model=name),
        "stop": link(STOP, model=name),
    }
    if report is None:
        if not numbers:
            await context.get("/models/{model}", model=name)  # there is no such model
        twin: dict[str, Any] = {"watch": None, "versions": []}
        return ScreenContent(twin, title=f"Drift of {name}", shown=None, **twin, **common)
    versions = report["versions"]
    wanted = context.query.get("version", "")
    chosen = next((one for one in versions if str(one["version"]) == wanted), None)
    shown = chosen or next(iter(versions), None)
    features = [] if shown is None else shown["features"]
    return ScreenContent(
        report,
        title=f"Drift of {name}",
        watch=report["watch"],
        versions=versions,
        shown=shown,
        features=[{**one, "chart": chart_of(one["bins"])} for one in features],
        tables=_tables(features),
        WIDTH=WIDTH,
        HEIGHT=HEIGHT,
        FOOT=FOOT,
        **common,
    )


def _usual(watch: Mapping[str, Any] | None) -> dict[str, Any]:
    """What a form begins with."""
    if watch is not None:
        return dict(watch)
    return {
        "percent": _USUAL.percent,
        "per_second": _USUAL.per_s,
        "window": _USUAL.window_s,
        "psi": _USUAL.psi,
        "ks": _USUAL.ks,
        "alpha": _USUAL.alpha,
        "min_sample": _USUAL.min_sample,
        "labels": _USUAL.labels,
        "names": _USUAL.names,
    }


def _tables(features: Sequence[Mapping[str, Any]]) -> dict[str, DownloadTable]:
    """All features in one, and the bins of each."""
    columns = ("role", "name", "state", "psi", "raw_psi", "ks", "p", "n_reference", "n_current")
    found = {ALL: DownloadTable(columns, [[one[column] for column in columns] for one in features])}
    bins = ("name", "low", "high", "reference", "current")
    for number, one in enumerate(features, 1):
        rows = [[each[column] for column in bins] for each in one["bins"]]
        found[f"{ALL}-{number}"] = DownloadTable(bins, rows)
    return found


async def watch(context: PageContext) -> str:
    """Begin, or change the terms; what the form does not show stays."""
    name, form = context.path["model"], context.form
    report = await context.maybe("/drift/{model}", model=name)
    known = _usual(report["watch"] if report else None)
    body: dict[str, Any] = {
        key: known[key] for key in ("alpha", "names", "percent", "per_second", "ks")
    }
    for field, kind in NUMBERS.items():
        if form.get(field, "").strip():
            body[field] = _number(field, form[field], kind)
    body["window"] = _number("window", form.get("window", ""), int)
    body["labels"] = form.get("labels", "").strip()
    await context.change("PUT", "/drift/{model}", body, model=name)
    return link(PATH, model=name)


async def refer(context: PageContext) -> str:
    name, form = context.path["model"], context.form
    chosen = form.get("version", "")
    body: dict[str, Any] = {"kind": chosen}
    if chosen.isdigit():
        body = {"kind": "window", "version": int(chosen), **_stretch(context)}
    await context.change("PUT", "/drift/{model}/reference", body, model=name)
    return link(PATH, model=name)


async def stop(context: PageContext) -> str:
    name = context.path["model"]
    await context.change("DELETE", "/drift/{model}", model=name)
    return link("/models/{model}", model=name)


def _stretch(context: PageContext) -> dict[str, str]:
    """Two moments if they are given, else a stretch until now."""
    since, until = (context.form.get(field, "").strip() for field in ("since", "until"))
    if since:
        return {"since": since, **({"until": until} if until else {})}
    seconds = _number("stretch", context.form.get("stretch", ""), int)
    return {"since": (context.services.now() - timedelta(seconds=seconds)).isoformat()}


def _number(field: str, text: str, kind: Any) -> Any:
    """Raises ControlApiError for the field."""
    try:
        return kind(text.strip().replace(",", "."))
    except ValueError:
        raise ControlApiError(422, "invalid", f"'{text[:40]}' is not a number", field) from None


SCREENS = (
    Screen(
        path=PATH,
        title="Drift",
        template="drift.html",
        load=load,
        under="/models",
        docs="drift",
        live=("drift.*", "model.drifted", "model.drift_ended"),
        live_every_s=15.0,
        about=lambda path: f"model:{path['model']}",
    ),
)
ACTS = (
    FormAction(path=PATH, screen=PATH, run=watch),
    FormAction(path=REFERENCE, screen=PATH, run=refer),
    FormAction(path=STOP, screen=PATH, run=stop),
)
