"""Rollouts on a whole server that is killed: what is asked of it, and what must hold all the time.

A rollout's events are its history: each move stands there with the weight it made. `check_history`
holds them against the plan, so that a move that was lost, made twice or made up shows.
"""

import http.client
from contextlib import suppress
from pathlib import Path
from typing import Any

from server.desired import disk
from support.yard import Yard, write_identity
from support.yard_load import eventually, query

MODEL = "m"
CALM = {"latency_ratio": 100, "latency_pause_ratio": 100, "rollback_window": 0, "min_sample": 3}
"""For a machine that has other work: nothing but kills is looked at."""


def serve_versions(y: Yard, *numbers: int) -> Path:
    """A working copy whose model has these versions, all loaded, and a route to the first."""
    work = y.repository("vision")
    write_identity(work, MODEL, *numbers, config="version_policy { all {} }")
    y.commit(work, "versions")
    y.push(work)
    y.wait_versions(MODEL, *numbers, seconds=60)
    whole = [{"name": "stable", "model": MODEL, "version": numbers[0], "weight": 100}]
    status, made = y.api("PUT", f"/routes/{MODEL}", {"arms": whole})
    assert status == 200, made
    return work


def insist(y: Yard, path: str, body: Any = None, seconds: float = 90.0) -> dict[str, Any]:
    """POST until it is answered: whoever is killed meanwhile is asked again when it is back. What
    was done before an answer was lost may be refused then, as it is done."""
    found: dict[str, Any] = {}

    def answered() -> bool:
        with suppress(OSError, http.client.HTTPException):
            status, document = y.api("POST", path, body)
            found.update(document or {}, status=status)
            return status < 500
        return False

    eventually(answered, f"{path} to be answered: {found}", seconds)
    return found


def started(y: Yard, candidate: int, **plan: Any) -> str:
    """The id of the rollout, whatever it takes to begin it."""
    body = {"name": MODEL, "candidate": candidate, "plan": {**CALM, **plan}}
    made = insist(y, "/rollouts", body)
    assert made["status"] == 201, made
    return str(made["id"])


def rollout(y: Yard, name: str) -> dict[str, Any]:
    """Nothing while nobody answers."""
    with suppress(OSError, http.client.HTTPException):
        status, found = y.api("GET", f"/rollouts/{name}")
        if status == 200:
            return dict(found)
    return {}


def until(y: Yard, name: str, *phases: str, seconds: float = 120.0) -> dict[str, Any]:
    """The rollout once it is in one of these phases, whoever is dead meanwhile."""
    found: dict[str, Any] = {}

    def there() -> bool:
        found.clear()
        found.update(rollout(y, name))
        return found.get("phase") in phases

    try:
        eventually(there, f"{name} to be {phases}", seconds)
    except AssertionError as late:
        raise AssertionError(f"{late}: {found}") from late
    return found


def history(y: Yard, name: str) -> list[tuple[str, float]]:
    """Each move of the rollout, and the candidate's weight after it."""
    page = y.api("GET", f"/events?subject=rollout:{name}&limit=500")[1]
    return [
        (str(row["kind"]).removeprefix("rollout."), row["data"]["after"]["weight"])
        for row in page["items"]
    ]


def check_weights(y: Yard, name: str) -> None:
    """The route says what the rollout says, and the gateway holds to one of the weights that the
    rollout has made."""
    (told,) = [one for one in disk.read(y.state).routes if one.name == MODEL]
    made = {weight for _, weight in history(y, name)}
    view, route = rollout(y, name), y.api("GET", f"/routes/{MODEL}")[1]
    arms = {arm["name"]: arm["weight"] for arm in route["arms"]}
    again = rollout(y, name)
    if view["revision"] == again["revision"] and view["phase"] not in ("healthy", "degraded"):
        assert arms["candidate"] == view["weight"], (route, view)
    assert all(arm.weight / 100 in made for arm in told.arms if arm.name == "candidate"), told


def weight_kept(y: Yard, name: str) -> float:
    """By the rows, read past the server."""
    ((weight,),) = query(y, f"SELECT weight FROM rollout WHERE id = '{name}'")
    return float(weight) / 100
