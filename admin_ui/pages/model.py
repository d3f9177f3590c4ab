"""One model: its versions on every server, its aliases, what was deployed when, its config."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from anyio import to_thread

from admin_ui.event_text import merge_events
from admin_ui.page_context import PageContext
from admin_ui.pages.loaded_version import sequences_here
from admin_ui.pages.rollback import roll_back, rollback_offer
from admin_ui.pages.steps import steps_here
from admin_ui.screens import FormAction, Screen, ScreenContent
from admin_ui.services import ControlApiError
from admin_ui.snapshots import config, difference
from admin_ui.text import link
from admin_ui.traffic.load import model_traffic, next_look_s
from control.access.scopes import Action
from control.health import FAILED, READY

EVENTS, DEPLOYMENTS = 30, 200
PATH = "/models/{model}"
ALIAS = "/models/{model}/aliases/{alias}"

Row = Mapping[str, Any]


async def load(context: PageContext) -> ScreenContent:
    name = context.path["model"]
    model, loads, events, served, back, sequences = await asyncio.gather(
        context.maybe(PATH, model=name),
        context.every("/loads", {"model": name}),
        context.get("/events", {"newest": "true", "limit": str(EVENTS), "subject": _about(name)}),
        model_traffic(context, name),
        rollback_offer(context, name),
        sequences_here(context, name),
    )
    if model is None and not loads:
        raise ControlApiError(404, "not_found", f"there is no model '{name[:150]}'")
    deployments = await _deployments(context, model)
    compared = await _compared(context, model, deployments)
    answers = max((row["version"] for row in loads if row["state"] == READY), default=0)
    return ScreenContent(
        model or {"name": name, "states": loads},
        title=name,
        name=name,
        model=model,
        rows=versions_by_server(model, loads),
        may_answer=any(row["version"] and row["state"] != FAILED for row in loads),
        traffic=served,
        next_look_s=next_look_s(served, bool(sequences)),
        sequences=sequences,
        steps=await steps_here(context, name, answers) if answers else None,
        servers=sorted({row["server"] for row in loads}),
        whole=[row for row in loads if not row["version"] and row["reason"]],
        deployments=deployments,
        compared=compared,
        pending=await _pending(context, name) if model else [],
        events=merge_events(events["items"]),
        act=link(PATH + "/aliases", model=name),
        back=back,
        go_back=link(PATH + "/rollback", model=name),
    )


def _about(name: str) -> str:
    """Subjects of events that are about a model."""
    return f"model:{name},alias:{name}@*,version:{name}@*"


def versions_by_server(model: Row | None, loads: Sequence[Row]) -> list[dict[str, Any]]:
    """A row a version, the highest first, with each server's state in it. Pure."""
    known = {one["version"]: one for one in (model or {}).get("versions", ())}
    numbers = {row["version"] for row in loads if row["version"]} | set(known)
    return [
        {
            "version": number,
            "states": {row["server"]: row for row in loads if row["version"] == number},
            "aliases": known.get(number, {}).get("aliases", []),
            "deployed": known.get(number, {}).get("deployed"),
            "digest": known.get(number, {}).get("digest", ""),
        }
        for number in sorted(numbers, reverse=True)
    ]


async def _deployments(context: PageContext, model: Row | None) -> list[dict[str, Any]]:
    """The pushes that changed this model, newest first; none for who may not see them."""
    if model is None or not model["repository"]:
        return []
    asked = {"repository": model["repository"], "limit": str(DEPLOYMENTS)}
    pushes = await context.maybe("/pushes", asked)
    name = model["name"]
    return [
        {**push, "snapshot": push["models"][name]}
        for push in (pushes or {"items": []})["items"]
        if name in push["models"] and push["deployed_at"]
    ]


async def _pending(context: PageContext, name: str) -> list[dict[str, Any]]:
    """What is wanted of the model's aliases and of its route, but not in force yet: `subject`,
    `page`, `server`, `reason`."""
    aliases, route = await asyncio.gather(
        context.every("/models/{model}/aliases", model=name),
        context.maybe("/routes/{route}", None, route=name),
    )
    subjects = [
        (f"alias @{one['name']}", link(ALIAS, model=name, alias=one["name"]), one)
        for one in aliases
    ]
    if route:
        subjects.append((f"route {name}", link("/routes/{route}", route=name), route))
    return [
        {**told, "subject": subject, "page": page}
        for subject, page, one in subjects
        for told in one["pending"]
    ]


async def _compared(
    context: PageContext, model: Row | None, deployments: Sequence[Row]
) -> dict[str, Any] | None:
    """The config of one deployment and how it differs from another; the last two, if not asked."""
    if model is None:
        return None
    digests = list(dict.fromkeys(one["snapshot"] for one in deployments if one["snapshot"]))
    if model["snapshot"] and model["snapshot"] not in digests:
        digests.insert(0, model["snapshot"])
    if not digests:
        return None
    new = _choice(context.query.get("new", ""), digests, digests[0])
    older = digests[digests.index(new) + 1 :]
    old = _choice(context.query.get("old", ""), digests, older[0] if older else "")
    read = partial(_configs, context.services.snapshots, model["name"], old, new)
    before, after = await to_thread.run_sync(read)
    lines = difference(before, after) if before is not None and after is not None else []
    commits = {one["snapshot"]: one["new_commit"] for one in reversed(deployments)}
    choices = [(one, commits.get(one, "")[:10] or f"snapshot {one[:10]}") for one in digests]
    return {
        "old": old,
        "new": new,
        "before": before,
        "after": after,
        "lines": lines,
        "choices": choices,
    }


def _configs(root: Path, name: str, old: str, new: str) -> tuple[str | None, str | None]:
    return (config(root, old, name) if old else None), config(root, new, name)


def _choice(wanted: str, digests: Sequence[str], usual: str) -> str:
    return wanted if wanted in digests else usual


async def load_alias(context: PageContext) -> ScreenContent:
    name, alias = context.path["model"], context.path["alias"]
    found, model = await asyncio.gather(
        context.get(ALIAS, model=name, alias=alias), context.get(PATH, model=name)
    )
    return ScreenContent(
        found,
        title=f"{name}@{alias}",
        name=name,
        alias=found,
        numbers=[one["version"] for one in model["versions"]],
        move=link(ALIAS + "/move", model=name, alias=alias),
        delete=link(ALIAS + "/delete", model=name, alias=alias),
    )


async def set_alias(context: PageContext) -> str:
    """A new one only: one that exists is moved on its own page, which says where it stands."""
    name, alias = context.path["model"], context.form.get("alias", "").strip()
    if not alias:
        raise ControlApiError(422, "invalid", "an alias needs a name, e.g. champion", "alias")
    body = {"version": whole(context, "version")}
    try:
        await context.change("PUT", ALIAS, body, expected=0, model=name, alias=alias)
    except ControlApiError as refused:
        raise beside(refused, {"name": "alias"}, "alias") from refused
    return link(PATH, model=name)


async def go_back(context: PageContext) -> str:
    return await roll_back(context, context.path["model"])


async def move_alias(context: PageContext) -> str:
    name, alias = context.path["model"], context.path["alias"]
    body = {"version": whole(context, "version")}
    expected = whole(context, "revision")
    await context.change("PUT", ALIAS, body, expected=expected, model=name, alias=alias)
    return link(PATH, model=name)


async def delete_alias(context: PageContext) -> str:
    name, alias = context.path["model"], context.path["alias"]
    await context.change("DELETE", ALIAS, model=name, alias=alias)
    return link(PATH, model=name)


def whole(context: PageContext, field: str) -> int:
    """A number that was typed. Raises ControlApiError beside its field."""
    text = context.form.get(field, "").strip()
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise ControlApiError(422, "invalid", f"'{text[:40]}' is no whole number", field)
    return int(text)


def beside(refused: ControlApiError, fields: Mapping[str, str], usual: str = "") -> ControlApiError:
    """The same refusal, at the form's name of the field."""
    field = fields.get(refused.field, refused.field) or usual
    return ControlApiError(refused.status, refused.code, refused.message, field, refused.headers)


def among(refused: ControlApiError, fields: Collection[str]) -> ControlApiError:
    """The same refusal, at its field where the form has that, at the form as a whole otherwise."""
    return beside(refused, {refused.field: refused.field if refused.field in fields else ""})


_LIVE = ("load.*", "model.*", "alias.*", "version.*", "push.*")
SCREENS = (
    Screen(
        path=PATH, title="Model", template="model.html", load=load, under="/models", live=_LIVE,
        live_every_s=10.0,
        about=lambda path: f"{_about(path['model'])},push:*",
    ),
    Screen(
        path=ALIAS, title="Alias", template="alias.html", load=load_alias, under="/models",
        needs=Action.READ,
    ),
)  # fmt: skip
ACTS = (
    FormAction(path=PATH + "/aliases", screen=PATH, run=set_alias),
    FormAction(path=PATH + "/rollback", screen=PATH, run=go_back),
    FormAction(path=ALIAS + "/move", screen=ALIAS, run=move_alias),
    FormAction(path=ALIAS + "/delete", screen=ALIAS, run=delete_alias, typed_name="alias"),
)
