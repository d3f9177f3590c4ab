"""What is wrong now, the worst first: decided from what the API tells. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from admin_ui.text import count, link, moment
from admin_ui.words import SHORT

FAILED, UP = "FAILED", "READY"
TAKEN_BACK = ("degraded", "aborting")
LATELY = timedelta(days=1)
AGAIN, WITHIN = 3, timedelta(minutes=10)
"""So many failures of a version in that time are one problem, even while it is ready;
so are so many deaths of its workers, the last of them that lately."""

_BAD_ENDS = {"failed": "was not served", "refused": "was refused"}

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Problem:
    """`kind`: "server", "load", "route", "rollout" or "push". `since`: RFC 3339. `to`: the page
    that tells more. `who`: whose change it came with, "" when nobody's."""

    kind: str
    title: str
    why: str
    since: str
    to: str
    who: str = ""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Seen:
    """What is looked at: rows of the API's lists. `events`, `pushes` and `rollouts` are the latest,
    newest first; `events` are changes of loads; `deaths` are of workers, where the server told."""

    loads: Sequence[Row]
    servers: Sequence[Row]
    models: Sequence[Row]
    pushes: Sequence[Row] = ()
    events: Sequence[Row] = ()
    routes: Sequence[Row] = ()
    rollouts: Sequence[Row] = ()
    deaths: Sequence[Row] = ()


def problems(seen: Seen, now: datetime) -> list[Problem]:
    """Dead servers, versions whose workers die again and again, that cannot be loaded or fail
    again and again, kill switches that are thrown, rollouts that were taken back, and pushes that
    came to a bad end, both lately and followed by no better one."""
    alive = {one["id"] for one in seen.servers if one["alive"]}
    pushers = {one["id"]: one["pusher"] for one in seen.pushes}
    brought = {one["name"]: pushers.get(one["push"], "") for one in seen.models}
    dying = {_key(one): one for one in seen.deaths if _dies_again(one, now)}
    loads = [one for one in seen.loads if _key(one) not in dying]
    return [
        *_servers(seen.servers),
        *_dying(dying.values(), brought),
        *_loads(loads, alive, brought),
        *_again(seen.events, loads, now, brought),
        *_routes(seen.routes),
        *_rollouts(seen.rollouts, now),
        *_pushes(seen.pushes, now),
    ]


def _servers(servers: Iterable[Row]) -> list[Problem]:
    return [
        Problem(
            "server",
            f"server {one['id'][:SHORT]} is silent",
            "it stopped telling how it is; what it served is not known",
            one["seen_at"],
            "/servers",
        )
        for one in servers
        if not one["alive"]
    ]


def _key(row: Row) -> tuple[str, int, str]:
    return row["model"], row["version"], row["server"]


def _dies_again(row: Row, now: datetime) -> bool:
    return row["deaths"] >= AGAIN and now - datetime.fromisoformat(row["last"]) <= WITHIN


def _dying(rows: Iterable[Row], brought: Mapping[str, str]) -> list[Problem]:
    """Whether they are up just now or not: a worker that comes back and dies is both by turns, and
    a version with another worker is up all the while."""
    return [
        Problem(
            "load",
            f"{one['model']} version {one['version']}: its worker dies again and again on server "
            f"{one['server'][:SHORT]}",
            f"{count(one['deaths'], 'death')}, {one['ready']} of "
            f"{count(one['instances'], 'instance')} ready now; the last, at "
            f"{moment(one['last'])}, {one['ending']}",
            one["since"],
            link("/models/{model}", model=one["model"]),
            brought.get(one["model"], ""),
        )
        for one in rows
    ]


def _loads(loads: Iterable[Row], alive: set[str], brought: Mapping[str, str]) -> list[Problem]:
    """One for each version and reason; versions are told instead of their model where both are."""
    found: dict[tuple[str, int, str], list[Row]] = {}
    for row in loads:
        if row["state"] == FAILED and row["server"] in alive:
            found.setdefault((row["model"], row["version"], row["reason"]), []).append(row)
    numbered = {model for model, version, _ in found if version}
    return [
        _load(model, version, reason, rows, brought.get(model, ""))
        for (model, version, reason), rows in found.items()
        if version or model not in numbered
    ]


def _load(model: str, version: int, reason: str, rows: Sequence[Row], who: str) -> Problem:
    which = f"{model} version {version}" if version else model
    places = ", ".join(sorted({row["server"][:SHORT] for row in rows}))
    since = min(row["at"] for row in rows)
    to = link("/models/{model}", model=model)
    return Problem("load", f"{which} failed on server {places}", reason, since, to, who)


def _again(
    events: Iterable[Row], loads: Iterable[Row], now: datetime, brought: Mapping[str, str]
) -> list[Problem]:
    """Versions that are up just now but fail again and again: a worker that dies at each request
    is ready most of the time."""
    ready = {_key(row) for row in loads if row["state"] == UP}
    failures: dict[tuple[str, int, str], list[Row]] = {}
    for one in events:
        told = one["data"]
        key = one["subject"].partition(":")[2], told["version"], told["server"]
        lately = now - datetime.fromisoformat(one["at"]) <= WITHIN
        if told["state"] == FAILED and lately and key in ready and told["version"]:
            failures.setdefault(key, []).append(one)
    return [
        Problem(
            "load",
            f"{model} version {version} fails again and again on server {server[:SHORT]}",
            f"{len(found)} times in {WITHIN.seconds // 60} minutes, the last time: "
            f"{found[0]['data']['reason']}",
            found[-1]["at"],
            link("/models/{model}", model=model),
            brought.get(model, ""),
        )
        for (model, version, server), found in failures.items()
        if len(found) >= AGAIN
    ]


def _routes(routes: Iterable[Row]) -> list[Problem]:
    return [
        Problem(
            "route",
            f"the kill switch of route {one['name']} is thrown",
            f"every request goes to {one['only']}, whatever the weights and rules say",
            one["updated_at"],
            link("/routes/{route}", route=one["name"]),
            one["updated_by"],
        )
        for one in routes
        if one["only"]
    ]


def _rollouts(rollouts: Iterable[Row], now: datetime) -> list[Problem]:
    told, settled = [], set()
    for one in rollouts:
        at = one["finished_at"] or one["updated_at"]
        lately = now - datetime.fromisoformat(at) <= LATELY
        if one["phase"] in TAKEN_BACK and one["name"] not in settled and lately:
            title = f"rollout of {one['name']} to version {one['candidate']} was taken back"
            to = link("/rollouts/{rollout}", rollout=one["id"])
            told.append(Problem("rollout", title, one["reason"], at, to, one["by"]))
        settled.add(one["name"])
    return told


def _pushes(pushes: Iterable[Row], now: datetime) -> list[Problem]:
    """`pushes` come newest first."""
    told, settled = [], set()
    for one in pushes:
        ref = one["repository"], one["ref"]
        at = one["finished_at"] or one["received_at"]
        lately = now - datetime.fromisoformat(at) <= LATELY
        if one["state"] in _BAD_ENDS and ref not in settled and lately:
            title = f"push to {one['repository']} {_BAD_ENDS[one['state']]}"
            to = link("/pushes/{push}", push=one["id"])
            why = one["reason"] or _first(one["report"])
            told.append(Problem("push", title, why, at, to, one["pusher"]))
        settled.add(ref)
    return told


def _first(report: str) -> str:
    """The first lines of a report."""
    return "\n".join(line for line in report.splitlines()[:3] if line.strip())
