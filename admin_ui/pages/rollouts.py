"""Rollouts: begun, watched, and told what to do."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from admin_ui.page_context import PageContext
from admin_ui.pages.model import PATH as MODEL
from admin_ui.pages.model import beside, whole
from admin_ui.pages.rollback import roll_back, rollback_offer
from admin_ui.pages.rollout_evidence import (
    KEY,
    evidence_charts,
    failed_moment,
    failed_span,
    figures_of,
    history_of,
    moment_of,
    move_markers,
)
from admin_ui.screens import FormAction, Screen, ScreenContent
from admin_ui.services import ControlApiError
from admin_ui.tables import cursor_page
from admin_ui.text import duration, link
from admin_ui.traffic.load import TrafficCharts
from admin_ui.traffic.markers import ChartMarker
from admin_ui.traffic.ranges import TimeRange
from control.access.scopes import Action
from control.clock import text_of
from control.rollouts.guardrails import GuardrailOutcome
from control.rollouts.plan import Mode
from control.rollouts.state import ENDS, Phase

PATH = "/rollouts/{rollout}"
EVENTS, ROUTES, MOST_MODELS = 50, 500, 50
COMMANDS = ("promote", "promote-full", "pause", "resume", "retry", "abort")
DECISIVE = (GuardrailOutcome.FAIL, GuardrailOutcome.PAUSE)

PLAN = ("mode", "mirror", "steps", "hold", "min_sample")

Row = Mapping[str, Any]
Choice = tuple[str, str]


async def load_all(context: PageContext) -> ScreenContent:
    page, document = await cursor_page(context, "/rollouts", ("name", "phase"))
    routes = (await context.get("/routes", {"limit": str(ROUTES)}))["items"]
    return ScreenContent(
        document,
        page=page,
        name=context.query.get("name", ""),
        phase=context.query.get("phase", ""),
        phases=[str(one) for one in Phase],
        modes=[str(one) for one in reversed(Mode)],
        names=[one["name"] for one in routes],
        candidates=await _candidates(context, routes) if context.may(Action.OPERATE) else [],
    )


async def _candidates(
    context: PageContext, routes: Sequence[Row]
) -> list[tuple[str, list[Choice]]]:
    """The versions that a route's traffic may move to, by route."""
    models = sorted({route["arms"][0]["model"] for route in routes})[:MOST_MODELS]
    loads, *found = await asyncio.gather(
        context.every("/loads"), *(context.maybe(MODEL, model=name) for name in models)
    )
    return candidates_of(routes, dict(zip(models, found, strict=True)), loads)


def candidates_of(
    routes: Sequence[Row], models: Mapping[str, Row | None], loads: Sequence[Row]
) -> list[tuple[str, list[Choice]]]:
    """Of each route with a choice, what it does now, and a value and a text for each version but
    the stable one: those that are loaded, or are in what was pushed. Pure."""
    ready = {(row["model"], row["version"]) for row in loads if row["state"] == "READY"}
    failed = {(row["model"], row["version"]) for row in loads if row["state"] == "FAILED"} - ready
    groups = []
    for route in routes:
        stable = route["arms"][0]
        name, model = route["name"], stable["model"]
        pushed = {one["version"] for one in (models.get(model) or {}).get("versions", ())}
        known = pushed | {number for one, number in ready if one == model}
        choices = [
            (f"{name}:{number}", f"version {number}, {_readiness((model, number), ready)}")
            for number in sorted(known - {stable["version"]}, reverse=True)
            if (model, number) not in failed
        ]
        if choices:
            now = f"version {stable['version']}" if stable["version"] else f"@{stable['alias']}"
            groups.append(
                (f"{name}, now {now}" if name == model else f"{name}, now {model} {now}", choices)
            )
    return groups


def _readiness(version: tuple[str, int], ready: Collection[tuple[str, int]]) -> str:
    return "ready" if version in ready else "will be loaded first"


async def load(context: PageContext) -> ScreenContent:
    identity = context.path["rollout"]
    asked = {"newest": "true", "limit": str(EVENTS), "subject": f"rollout:{identity}"}
    rollout, standing, seen, events = await asyncio.gather(
        context.get(PATH, rollout=identity),
        context.get(PATH + "/standing", rollout=identity),
        context.get(PATH + "/evidence", rollout=identity),
        context.get("/events", asked),
    )
    told = None
    if not rollout["finished_at"]:
        told = await context.get(PATH + "/outlook", rollout=identity)
    moments, plan = seen["moments"], rollout["plan"]
    history = history_of(moments, events["items"], rollout["reason"])
    return ScreenContent(
        {**rollout, "standing": standing},
        title=f"{'Rollback' if rollout['rollback'] else 'Rollout'} of {rollout['name']}: "
        f"version {rollout['candidate']}",
        rollout=rollout,
        outlook=told,
        standing=standing,
        verdicts=[
            {
                **one,
                "told": one["outcome"] in DECISIVE and one["words"] in rollout["reason"],
                "figures": figures_of(one),
            }
            for one in standing["verdicts"]
        ],
        history=history[::-1],
        events=events["items"] if not history else [],
        rail=rail(rollout, failed_moment(moments)),
        offers=offers(rollout),
        arms=arms(standing, mirrored=bool(plan["mirror"])),
        traffic=_charts(context, rollout, standing, moments, move_markers(history)),
        acts={one: link(f"{PATH}/{one}", rollout=identity) for one in (*COMMANDS, "rollback")},
        back=await _offered_back(context, rollout),
    )


def _charts(
    context: PageContext,
    rollout: Row,
    standing: Row,
    moments: Sequence[Row],
    markers: Sequence[ChartMarker],
) -> TrafficCharts:
    """Of one under way, how it stands now is the last point: the same numbers as in the table."""
    now = context.services.now()
    if not rollout["finished_at"]:
        moments = [*moments, moment_of(standing, rollout, text_of(now))]
    begun, over = (
        datetime.fromisoformat(one) if one else now
        for one in (rollout["created_at"], rollout["finished_at"])
    )
    charts = evidence_charts(moments, rollout["plan"])
    within = TimeRange(KEY, begun, over)
    failed = failed_span(moments)
    return TrafficCharts(within, charts, 1, 0, context.at, markers, failed=failed)


async def _offered_back(context: PageContext, rollout: Row) -> dict[str, Any] | None:
    """Of one that has ended; one under way is aborted."""
    if rollout["phase"] not in ENDS or rollout["name"] != rollout["model"]:
        return None
    return await rollback_offer(context, rollout["model"])


def rail(rollout: Row, failed: Row | None = None) -> list[dict[str, Any]]:
    """The plan's stations in order: `state` is "past", "here", "failed" where it was rolled
    back, or "ahead". `failed`: how it stood until then. Pure."""
    plan = rollout["plan"]
    stations = [("prewarm", "Prewarm", "no traffic")]
    if plan["mode"] == Mode.IMMEDIATE:
        plan = {"mirror": 0, "steps": ()}
        stations.append(("promoting", "100 %", "at once"))
    if plan["mirror"]:
        stations.append(("mirror", "Mirror", f"mirror {plan['mirror']:g} %"))
    for number, step in enumerate(plan["steps"], 1):
        last = number == len(plan["steps"])
        key = "promoting" if last else f"step {number}"
        words = f"{duration(step['hold'])}, {step['min_sample']:,} requests an arm"
        stations.append((key, f"{step['weight']:g} %", words))
    stations.append(("healthy", "Healthy", "the stable version"))
    keys = [key for key, _, _ in stations]
    degraded = rollout["phase"] in (Phase.DEGRADED, Phase.ABORTING)
    here = keys.index(_station(failed if failed and degraded else rollout, keys))
    over = rollout["phase"] == Phase.HEALTHY
    now = "failed" if degraded else "here"
    return [
        {
            "label": label,
            "words": words,
            "state": "past" if at < here or over else now if at == here else "ahead",
        }
        for at, (_, label, words) in enumerate(stations)
    ]


def _station(rollout: Row, keys: list[str]) -> str:
    """Where it is, or was when something stopped it."""
    if rollout["phase"] in keys:
        return str(rollout["phase"])
    if rollout["weight"] == 100:
        return "promoting"
    step = f"step {rollout['step']}"
    if step in keys:
        return step
    return "mirror" if rollout["mirror"] and "mirror" in keys else "prewarm"


def arms(standing: Row, mirrored: bool) -> list[tuple[str, Row]]:
    """The stable one first; copies only where the plan has any. Pure."""
    order = ("stable", "candidate", "mirrored")
    there = [(name, standing["arms"][name]) for name in order if name in standing["arms"]]
    return [one for one in there if one[0] != "mirrored" or mirrored]


def offers(rollout: Row) -> list[tuple[str, str]]:
    """What may be wanted of it now beside aborting, with the buttons' words. Pure."""
    phase = rollout["phase"]
    if phase == Phase.DEGRADED:
        return [("retry", "Retry")]
    if phase in ENDS or phase == Phase.ABORTING:
        return []
    forward = [("promote", "Promote to the next step"), ("promote-full", "Promote to 100 %")]
    if phase != Phase.PAUSED:
        return [*forward, ("pause", "Pause")]
    return forward if rollout["done"] else [*forward, ("resume", "Resume")]


async def start(context: PageContext) -> str:
    name, _, version = context.form.get("candidate", "").strip().rpartition(":")
    if not (name and version.isascii() and version.isdigit()):
        wrong = "choose the route and the version that is to take over its traffic"
        raise ControlApiError(422, "invalid", wrong, "candidate")
    plan = {key: context.form[key].strip() for key in PLAN if context.form.get(key, "").strip()}
    body = {"name": name, "candidate": int(version), "plan": plan}
    try:
        found = await context.change("POST", "/rollouts", body)
    except ControlApiError as refused:
        known = refused.field in (*PLAN, "candidate")
        raise beside(refused, {} if known else {refused.field: "candidate"}) from refused
    return link(PATH, rollout=found.document["id"])


def _tell(command: str) -> Callable[[PageContext], Awaitable[str]]:
    async def tell(context: PageContext) -> str:
        identity = context.path["rollout"]
        expected = whole(context, "revision")
        await context.change("POST", f"{PATH}/{command}", None, expected, rollout=identity)
        return link(PATH, rollout=identity)

    return tell


async def go_back(context: PageContext) -> str:
    rollout = await context.get(PATH, rollout=context.path["rollout"])
    return await roll_back(context, rollout["model"])


async def abort(context: PageContext) -> str:
    """Whatever it did in the meantime; the name is typed, as it takes traffic from people."""
    identity = context.path["rollout"]
    name = (await context.get(PATH, rollout=identity))["name"]
    if context.form.get("confirm", "").strip() != name:
        raise ControlApiError(422, "invalid", f"type {name} here to go on", "confirm")
    await context.change("POST", PATH + "/abort", rollout=identity)
    return link(PATH, rollout=identity)


SCREENS = (
    Screen(
        path="/rollouts",
        title="Rollouts",
        menu="Rollouts",
        docs="rollouts",
        template="rollouts.html",
        load=load_all,
        live=("rollout.*",),
    ),
    Screen(
        path=PATH,
        title="Rollout",
        template="rollout.html",
        load=load,
        under="/rollouts",
        live=("rollout.*",),
        live_every_s=1.0,
        about=lambda path: f"rollout:{path['rollout']}",
        personal=True,
    ),
)
ACTS = (
    FormAction(path="/rollouts", screen="/rollouts", run=start),
    *(
        FormAction(path=f"{PATH}/{command}", screen=PATH, run=_tell(command))
        for command in COMMANDS
        if command != "abort"
    ),
    FormAction(path=PATH + "/rollback", screen=PATH, run=go_back),
    FormAction(path=PATH + "/abort", screen=PATH, run=abort),
)
