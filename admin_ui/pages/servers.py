"""The servers that share this database; what this one has loaded, and the memory it takes."""

import asyncio
from collections import Counter
from typing import Any

from admin_ui.page_context import PageContext
from admin_ui.screens import FormAction, Screen, ScreenContent
from admin_ui.services import ControlApiError
from admin_ui.tables import TablePage, table
from admin_ui.traffic.load import server_traffic


async def load(context: PageContext) -> ScreenContent:
    servers, loads, this, (running, problem) = await asyncio.gather(
        context.every("/servers"),
        context.every("/loads"),
        context.get("/server"),
        _running(context),
    )
    states: dict[str, Counter[str]] = {one["id"]: Counter() for one in servers}
    for row in loads:
        if row["version"] and row["server"] in states:
            states[row["server"]][row["health"]["state"]] += 1
    keys = {
        "id": lambda row: row["id"],
        "seen": lambda row: row["seen_at"],
        "started": lambda row: row["started_at"],
        "version": lambda row: (row["version"], row["id"]),
    }
    shown = table(context, servers, keys, "id", lambda row: f"{row['id']} {row['admin_url']}")
    chosen = context.query.get("server", "")
    on_demand = await _on_demand(context) if running else []
    ids = [one["id"] for one in servers if chosen in ("", one["id"])]
    counted = {name: dict(sorted(counter.items())) for name, counter in states.items()}
    twin = {"items": list(shown.rows), "running": running, "on_demand": on_demand}
    return ScreenContent(
        twin,
        table=shown,
        states=counted,
        this=this,
        running=running,
        instances=_instances(context, _loaded(running["items"] if running else [], on_demand)),
        on_demand=_residency(context, on_demand),
        problem=problem,
        chosen=chosen if ids else "",
        traffic=await server_traffic(context, ids or list(states)),
        room=await context.maybe("/series/storage"),
    )


async def _running(context: PageContext) -> tuple[Any, str]:
    """What this server's gateway tells, or why it does not."""
    try:
        return await context.get("/instances"), ""
    except ControlApiError as refused:
        if refused.status != 503:
            raise
        return None, refused.message


async def _on_demand(context: PageContext) -> list[Any]:
    """Versions that load on demand here; none where the gateway has just gone."""
    try:
        found = await context.maybe("/residency")
    except ControlApiError as refused:
        if refused.status != 503:
            raise
        return []
    return list(found["items"]) if found else []


def _residency(context: PageContext, rows: list[Any]) -> TablePage:
    keys = {
        "model": lambda row: (row["model"], row["version"]),
        "state": lambda row: (row["state"], row["model"]),
        "bytes": lambda row: (-row["bytes"], row["model"]),
        "idle": lambda row: float("inf") if row["idle_s"] is None else row["idle_s"],
        "waiting": lambda row: (-row["waiting"], row["model"]),
        "evictions": lambda row: (-row["evictions"], row["model"]),
    }
    return table(context, rows, keys, "model", "{model} {state} {held_by}".format_map, "res.")


def _loaded(rows: list[Any], on_demand: list[Any]) -> list[Any]:
    """Without versions that wait for their first request, which have no instance."""
    cold = {(one["model"], one["version"]) for one in on_demand if one["state"] != "loaded"}
    return [row for row in rows if (row["model"], row["version"]) not in cold]


def _instances(context: PageContext, rows: list[Any]) -> TablePage:
    keys = {
        "model": lambda row: (row["model"], row["version"]),
        "ready": lambda row: (row["ready"] - row["instances"], row["model"]),
        "deaths": lambda row: (row["deaths"], row["model"]),
        "memory": lambda row: (row["resident_bytes"], row["model"]),
        "pending": lambda row: (row["pending"], row["model"]),
        "failed": lambda row: (row["failed"], row["model"]),
    }
    text = "{model} {backend} {devices}".format_map
    return table(context, rows, keys, "model", text, "run.")


SCREENS = (
    Screen(
        path="/servers",
        title="Servers and memory",
        menu="Servers",
        docs="memory",
        template="servers.html",
        load=load,
        live=("load.*", "server.*"),
        live_every_s=10.0,
    ),
)
ACTS: tuple[FormAction, ...] = ()
