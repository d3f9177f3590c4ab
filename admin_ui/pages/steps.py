"""The graph of an ensemble with what each step did in the page's range of time."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from admin_ui.page_context import PageContext
from admin_ui.pages.loaded_version import maybe_here
from admin_ui.pages.step_layout import (
    ANSWER,
    BOX_PADDING,
    LINE_HEIGHT,
    REQUEST,
    PlacedBox,
    StepLayout,
    lay_out,
    links_of,
)
from admin_ui.text import count, duration, link, number
from admin_ui.traffic.ranges import range_of
from control.clock import text_of

STEPS = "/instances/{model}/versions/{version}/steps"
MOST_DRAWN = 100
"""Steps of a graph that is drawn; of a larger one there is the table alone."""

LONGEST_LINE = 30
"""Characters of a line in a box."""

LEAST_RATE = 0.1
"""Calls a second; of fewer the calls themselves are told."""

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class BoxText:
    """What stands in a box. `to`: the page of the model that it calls, "" for none; `spoken`: all
    of it as a sentence. `lines`: each with its class."""

    title: str
    lines: Sequence[tuple[str, str]]
    to: str = ""
    spoken: str = ""
    mood: str = ""


@dataclass(frozen=True, slots=True)
class DrawnSteps:
    """`found`: as the API tells it; `rows`: its steps, each with the page of what it calls and
    when it runs, in words. `layout` is None of a graph that is not drawn: `undrawn` says why."""

    found: Row
    rows: Sequence[Row]
    layout: StepLayout | None
    undrawn: str
    texts: Mapping[int, BoxText]

    def lines(self, box: PlacedBox) -> list[tuple[float, str, str]]:
        """Of a box: y, class and text of each line below its title."""
        begin = box.y + BOX_PADDING + 1.75 * LINE_HEIGHT
        return [
            (round(begin + at * LINE_HEIGHT, 1), kind, line)
            for at, (kind, line) in enumerate(self.texts[box.number].lines)
        ]


async def steps_here(context: PageContext, name: str, version: int) -> DrawnSteps | None:
    """None for a version that is no ensemble, or is not loaded on this server."""
    within = range_of(context.query, context.services.now())
    ends = {"since": text_of(within.since), "until": text_of(within.until)}
    found = await maybe_here(context, STEPS, ends, model=name, version=str(version))
    if found is None:
        return None
    routes = {one["name"] for one in await context.every("/routes")}
    return await asyncio.to_thread(drawn, found, routes)


def drawn(found: Row, routes: set[str]) -> DrawnSteps:
    """Pure; takes up to half a second. `routes`: names of routes, which steps may call as well."""
    rows = [
        {**step, "to": page_of(step["model"], routes), "runs": when(step)}
        for step in found["steps"]
    ]
    texts = {step["number"]: text_of_step(step, found["requests"]) for step in rows}
    texts[REQUEST] = BoxText("request", [("soft", _cut(", ".join(found["inputs"])))])
    texts[ANSWER] = BoxText("answer", [("soft", _cut(", ".join(found["outputs"])))])
    if len(rows) > MOST_DRAWN:
        return DrawnSteps(found, rows, None, f"A graph of {len(rows)} steps is not drawn.", texts)
    lines = {place: 1 + len(text.lines) for place, text in texts.items()}
    links = links_of(found["steps"], found["inputs"], found["outputs"])
    layout = lay_out(lines, links)
    undrawn = ""
    if layout is None:
        joined = f"{count(len(links), 'line')} between them"
        undrawn = f"A graph of {count(len(rows), 'step')} with {joined} is too dense to be drawn."
    return DrawnSteps(found, rows, layout, undrawn, texts)


def page_of(callee: str, routes: set[str]) -> str:
    """The page of what a step calls: a model, MODEL@ALIAS or a route."""
    model, at, alias = callee.partition("@")
    if at:
        return link("/models/{model}/aliases/{alias}", model=model, alias=alias)
    if callee in routes:
        return link("/routes/{route}", route=callee)
    return link("/models/{model}", model=callee)


def when(step: Row) -> str:
    """When and over what a step runs, "" for once for each request."""
    parts = [f"if {step['condition']}"] if step["condition"] else []
    if step["mapped"]:
        parts.append(f"for each of {step['mapped']}")
    if step["decoupled"]:
        parts.append("several responses")
    return ", ".join(parts)


def text_of_step(step: Row, requests: int) -> BoxText:
    """Its box: when it runs, how often, how fast, and what fails or is left out."""
    figures = step["figures"]
    title = f"{step['number']} {step['model']}"
    if step["version"]:
        title += f" v{step['version']}"
    lines = [("soft", _cut(step["runs"]))] if step["runs"] else []
    if figures["calls"]:
        lines.append(("", _traffic(figures)))
    else:
        lines.append(("soft", "left out each time" if figures["skipped"] else "not called"))
    if figures["skipped"] and figures["calls"]:
        lines.append(("", f"skipped {_percent(figures['skipped_share'])}"))
    if step["mapped"] and figures["calls_per_request"] is not None:
        lines.append(("", f"{number(figures['calls_per_request'])} rows a request"))
    if figures["failed"]:
        lines.append(("bad", f"▲ {_percent(figures['error_rate'])} failed"))
    if figures["cancelled"]:
        lines.append(("soft", f"{figures['cancelled']:,} cancelled"))
    title = _cut(title, 26)
    spoken = " ".join([title, *(line for _, line in lines)])
    mood = "bad" if figures["failed"] else "" if figures["calls"] or not requests else "idle"
    return BoxText(title, lines, step["to"], spoken, mood)


def _traffic(figures: Row) -> str:
    rate, p95 = figures["calls_per_s"], figures["latency_ms_p95"]
    often = count(figures["calls"], "call") if rate < LEAST_RATE else f"{number(_short(rate))}/s"
    return often if p95 is None else f"{often} · p95 {duration(_short(p95) / 1000)}"


def _short(value: float) -> float:
    """Three digits of it."""
    return float(f"{value:.3g}")


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{number(_short(share * 100))} %"


def _cut(text: str, most: int = LONGEST_LINE) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
