"""All models: those that came by git and those that lie in the server's own model folders."""

import asyncio
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from admin_ui.page_context import PageContext
from admin_ui.screens import FormAction, Screen, ScreenContent
from admin_ui.tables import table
from admin_ui.traffic.recent import RecentTraffic, recent_traffic
from control.health import rank, worst

FIGURES = ("requests_per_s", "error_percent", "p99_ms")
"""Of a model's traffic, which the table is sorted by."""

Row = Mapping[str, Any]


async def load(context: PageContext) -> ScreenContent:
    deployed, loads, traffic = await asyncio.gather(
        context.every("/models"), context.every("/loads"), recent_traffic(context)
    )
    state = context.query.get("state", "")
    rows = [row for row in model_rows(deployed, loads) if state in ("", row["state"])]
    keys: dict[str, Any] = {
        "name": lambda row: row["name"],
        "state": lambda row: (rank(row["state"]), row["name"]),
        "source": lambda row: (row["repository"] or "", row["name"]),
        "versions": lambda row: (len(row["versions"]), row["name"]),
        "deployed": lambda row: (row["deployed_at"] or "", row["name"]),
        **{one: partial(_figure, traffic, one) for one in FIGURES},
    }
    shown = table(context, rows, keys, "name", _text)
    twin = {"items": list(shown.rows), "page": shown.number, "pages": shown.pages}
    states = sorted({row["state"] for row in rows} | {state} - {""}, key=rank)
    return ScreenContent(
        {**twin, "total": shown.total}, table=shown, state=state, states=states, traffic=traffic
    )


def _figure(traffic: Mapping[str, RecentTraffic], figure: str, row: Row) -> tuple[float, str]:
    found = traffic.get(row["name"])
    return (getattr(found, figure) or 0.0) if found else -1.0, row["name"]


def model_rows(deployed: Iterable[Row], loads: Iterable[Row]) -> list[dict[str, Any]]:
    """One row a model, with the health of its versions. A version is as bad as on its worst
    server. Pure."""
    rows = {one["name"]: _row(one["name"], one) for one in deployed}
    for told in loads:
        row = rows.setdefault(told["model"], _row(told["model"], {}))
        if told["version"]:
            number = str(told["version"])
            row["versions"][number] = _worse(row["versions"].get(number), told["health"]["state"])
        else:
            row["whole"] = _worse(row["whole"], told["health"]["state"])
    for row in rows.values():
        states = [*row["versions"].values(), *([row["whole"]] if row["whole"] else [])]
        row["state"] = worst(states) or "not loaded"
        del row["whole"]
    return list(rows.values())


def _row(name: str, model: Row) -> dict[str, Any]:
    return {
        "name": name,
        "repository": model.get("repository"),
        "deployed_at": model.get("deployed_at"),
        "deployed": model.get("snapshot") is not None,
        "aliases": dict(model.get("aliases", {})),
        "versions": {},
        "whole": None,
        "state": "",
    }


def _worse(one: str | None, other: str) -> str:
    return other if one is None else worst((one, other))


def _text(row: Row) -> str:
    return " ".join((row["name"], row["repository"] or "", row["state"], *row["aliases"]))


SCREENS = (
    Screen(
        path="/models",
        title="Models",
        menu="Models",
        docs="formats",
        template="models.html",
        load=load,
        live=("load.*", "model.*", "alias.*", "version.*"),
        live_every_s=10.0,
    ),
)
ACTS: tuple[FormAction, ...] = ()
