"""The first page: what is wrong now, then how much there is of everything."""

import asyncio
from collections import Counter
from typing import Any

from admin_ui.event_text import merge_events
from admin_ui.page_context import PageContext
from admin_ui.screens import FormAction, Screen, ScreenContent
from admin_ui.traffic.load import next_look_s, yard_traffic

LATEST = 100
_EVENTS, _PUSHES = 12, 8


async def load(context: PageContext) -> ScreenContent:
    wrong, loads, servers, models, repositories, pushes, events = await asyncio.gather(
        context.every("/problems"),
        context.every("/loads"),
        context.every("/servers"),
        context.every("/models"),
        context.every("/repositories"),
        _latest(context, "/pushes", {"limit": str(_PUSHES)}),
        _latest(context, "/events", {"newest": "true", "limit": str(LATEST), "kind": _TOLD}),
    )
    traffic = await yard_traffic(context)
    trouble = context.services.problem()
    counts = _counts(loads, servers, models, repositories)
    twin = {"problems": wrong, "counts": counts}
    happened = merge_events(events)[:_EVENTS]
    if trouble:
        counts["servers_alive"] = None  # no heartbeat can be written
    return ScreenContent(
        twin,
        wrong=[one for one in wrong if not one["acknowledged"]],
        known=[one for one in wrong if one["acknowledged"]],
        counts=counts,
        pushes=pushes,
        events=happened,
        trouble="",
        traffic=traffic,
        next_look_s=next_look_s(traffic),
    )


async def _latest(context: PageContext, path: str, query: dict[str, str]) -> list[Any]:
    """One page of a list; nothing for who may not see it."""
    found = await context.maybe(path, query)
    return found["items"] if found else []


_TOLD = (
    "load.*,push.*,model.*,alias.*,route.*,rollout.*,server.*,repository.*,problem.*,"
    "experiment.created,experiment.started,experiment.stopped,experiment.concluded"
)


def _counts(loads: Any, servers: Any, models: Any, repositories: Any) -> dict[str, Any]:
    versions = [row for row in loads if row["version"]]
    return {
        "models": len({row["model"] for row in loads} | {one["name"] for one in models}),
        "versions": dict(Counter(row["health"]["state"] for row in versions)),
        "servers_alive": sum(one["alive"] for one in servers),
        "servers": len(servers),
        "repositories": len(repositories),
        "aliases": sum(len(one["aliases"]) for one in models),
    }


SCREENS = (
    Screen(
        path="/",
        title="Overview",
        menu="Overview",
        docs="console",
        template="overview.html",
        load=load,
        live=(
            "load.*",
            "push.*",
            "model.*",
            "alias.*",
            "server.*",
            "repository.*",
            "route.*",
            "rollout.*",
            "problem.*",
        ),
        live_every_s=10.0,
    ),
)
ACTS: tuple[FormAction, ...] = ()
