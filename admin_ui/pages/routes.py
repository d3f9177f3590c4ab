"""Routes: public names and the arms behind them; weights, rules, mirrors, the kill switch."""

import asyncio
import re
from typing import Any

from admin_ui.page_context import PageContext
from admin_ui.pages.model import beside, whole
from admin_ui.pages.rollback import roll_back, rollback_offer
from admin_ui.pages.route_terms import (
    arm_rows,
    check_whole,
    mirrors_text,
    percent,
    read_arms,
    read_mirrors,
    read_rules,
    read_target,
    rules_text,
    target_of,
)
from admin_ui.screens import FormAction, Screen, ScreenContent
from admin_ui.services import ControlApiError
from admin_ui.tables import table
from admin_ui.text import link
from admin_ui.traffic.load import next_look_s, route_traffic

PATH = "/routes/{route}"
ACTS_OF_ONE = ("weights", "change", "kill", "release", "rollback", "delete")
EVENTS = 20


async def load_all(context: PageContext) -> ScreenContent:
    rows = await context.every("/routes")
    keys = {"name": lambda row: row["name"], "updated": lambda row: row["updated_at"]}
    shown = table(context, rows, keys, "name", _text)
    twin = {"items": list(shown.rows)}
    targets = await _targets(context)
    models = sorted({re.split("[:@]", one)[0] for one in targets})
    return ScreenContent(twin, table=shown, target_of=target_of, targets=targets, models=models)


async def _targets(context: PageContext) -> list[str]:
    """What an arm may be answered by: each loaded version, and each alias."""
    models, loads = await asyncio.gather(context.every("/models"), context.every("/loads"))
    versions = {(row["model"], row["version"]) for row in loads if row["version"]}
    aliases = {(one["name"], alias) for one in models for alias in one["aliases"]}
    return [
        *(f"{model}:{version}" for model, version in sorted(versions)),
        *(f"{model}@{alias}" for model, alias in sorted(aliases)),
    ]


async def load(context: PageContext) -> ScreenContent:
    name = context.path["route"]
    route = await context.get(PATH, route=name)
    asked = {"newest": "true", "limit": str(EVENTS), "subject": f"route:{name}"}
    events = await context.get("/events", asked)
    acts = {one: link(f"{PATH}/{one}", route=name) for one in ACTS_OF_ONE}
    typed = context.form if context.act == acts["change"] else None
    explained, problem = await _explained(context, name)
    traffic = await route_traffic(context, route)
    return ScreenContent(
        route,
        title=name,
        route=route,
        events=events["items"],
        acts=acts,
        target_of=target_of,
        arms=arm_rows(route, typed),
        targets=await _targets(context),
        rules=rules_text(route),
        mirrors=mirrors_text(route),
        explained=explained,
        traffic=traffic,
        next_look_s=next_look_s(traffic),
        problem=problem,
        back=await rollback_offer(context, name) if _of_its_name(route) else None,
    )


async def _explained(context: PageContext, name: str) -> tuple[Any, str]:
    """What the unit of the page's query would get, or why that cannot be said."""
    asked = {key: context.query[key] for key in ("unit", "header") if context.query.get(key)}
    if not asked:
        return None, ""
    try:
        return await context.get(PATH + "/explain", asked, route=name), ""
    except ControlApiError as refused:
        return None, refused.message


async def create(context: PageContext) -> str:
    """With one arm, which gets everything."""
    name = context.form.get("name", "").strip()
    if not name:
        raise ControlApiError(422, "invalid", "a route needs a name, e.g. digits", "name")
    target = read_target(context.form.get("target", "").strip(), "the stable arm", "target")
    body = {"arms": [{**target, "name": "stable", "weight": 100}]}
    try:
        await context.change("PUT", PATH, body, expected=0, route=name)
    except ControlApiError as refused:
        ours = refused.field in ("name", "route") or refused.status in (409, 412)
        field = "name" if ours else "target"
        raise beside(refused, {refused.field: field}, field) from refused
    return link(PATH, route=name)


async def set_weights(context: PageContext) -> str:
    name = context.path["route"]
    route = await context.get(PATH, route=name)
    weights = {
        arm: percent(context.form.get(f"weight.{arm}", ""), f"the weight of '{arm}'", "weights")
        for arm in (one["name"] for one in route["arms"])
    }
    check_whole(weights, "weights")
    del weights[route["arms"][0]["name"]]  # it gets what is left
    await _changed(context, "PATCH", PATH, {"weights": weights}, usual="weights")
    return link(PATH, route=name)


async def change(context: PageContext) -> str:
    body = {
        "arms": read_arms(context.form),
        "unit": context.form.get("unit", "").strip(),
        "salt": context.form.get("salt", "").strip(),
        "matches": read_rules(context.form.get("matches", "")),
        "mirrors": read_mirrors(context.form.get("mirrors", "")),
    }
    await _changed(context, "PUT", PATH, body, usual="arms")
    return link(PATH, route=context.path["route"])


async def kill(context: PageContext) -> str:
    await _changed(context, "POST", PATH + "/kill", {"arm": context.form.get("arm", "")})
    return link(PATH, route=context.path["route"])


async def release(context: PageContext) -> str:
    await _changed(context, "DELETE", PATH + "/kill", None)
    return link(PATH, route=context.path["route"])


async def go_back(context: PageContext) -> str:
    return await roll_back(context, context.path["route"])


def _of_its_name(route: Any) -> bool:
    """Whether all that it leads to are versions of the model of its own name."""
    return all(arm["model"] == route["name"] for arm in route["arms"])


async def delete(context: PageContext) -> str:
    await _changed(context, "DELETE", PATH, None)
    return "/routes"


async def _changed(context: PageContext, verb: str, path: str, body: Any, usual: str = "") -> None:
    """`usual`: the form's field for what is wrong with none that it has."""
    expected = whole(context, "revision")
    try:
        await context.change(verb, path, body, expected, route=context.path["route"])
    except ControlApiError as refused:
        known = ("arms", "unit", "salt", "matches", "mirrors", "weights", "arm")
        ours = refused.field if refused.field in known else usual if refused.status == 422 else ""
        raise beside(refused, {refused.field: ours}, "") from refused


def _text(row: Any) -> str:
    return " ".join((row["name"], *(target_of(arm) for arm in row["arms"])))


SCREENS = (
    Screen(
        path="/routes",
        title="Routes",
        menu="Routes",
        docs="routes",
        template="routes.html",
        load=load_all,
        live=("route.*", "rollout.*"),
    ),
    Screen(
        path=PATH,
        title="Route",
        template="route.html",
        load=load,
        under="/routes",
        live=("route.*", "rollout.*", "alias.*"),
        live_every_s=10.0,
    ),
)
ACTS = (
    FormAction(path="/routes", screen="/routes", run=create),
    FormAction(path=PATH + "/weights", screen=PATH, run=set_weights),
    FormAction(path=PATH + "/change", screen=PATH, run=change),
    FormAction(path=PATH + "/kill", screen=PATH, run=kill),
    FormAction(path=PATH + "/release", screen=PATH, run=release),
    FormAction(path=PATH + "/rollback", screen=PATH, run=go_back),
    FormAction(path=PATH + "/delete", screen=PATH, run=delete, typed_name="route"),
)
