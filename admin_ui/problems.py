"""What is wrong now, the worst first: decided from what the API tells. Pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from admin_ui.event_text import SHORT
from admin_ui.text import count, link, moment
from control.health import CRASH_LOOP, ERRORS, QUEUE_FULL, QUEUE_TIME, SLOW, rank

FAILED, UP = "FAILED", "READY"
TAKEN_BACK = ("degraded", "aborting")
LATELY = timedelta(days=1)
PATIENCE = timedelta(minutes=1)
"""How long an alias or route may wait for a version that loads."""
_ILLS = {
    CRASH_LOOP: "crashes repeatedly",
    ERRORS: "fails requests",
    QUEUE_FULL: "refuses requests",
    SLOW: "is slower than on its last day",
    QUEUE_TIME: "lets requests wait",
}
"""What a version does that is loaded and not well, by the reason code of its health."""

MOST_NAMES = 10

_BAD_ENDS = {"failed": "was not served", "refused": "was refused"}

Row = Mapping[str, Any]
Key = tuple[str, int, str]
"""Model, version, server."""
_LoadKey = tuple[str, int, str]
"""Model, version (0: the model as a whole), reason."""


@dataclass(frozen=True, slots=True)
class Problem:
    """`kind`: "server", "load", "route", "rollout" or "push". `since`: RFC 3339, or "". `to`: the
    page that tells more. `who`: whose change it came with, "" when nobody's."""

    kind: str
    title: str
    why: str
    since: str
    to: str
    who: str = ""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class ProblemInputs:
    """What is looked at: rows of the API's lists. `pushes` and `rollouts` are the latest, newest
    first; `deaths` are of workers, where the server told;
    `trouble` is why nothing can be changed just now, "" while all is well."""

    loads: Sequence[Row]
    servers: Sequence[Row]
    models: Sequence[Row]
    pushes: Sequence[Row] = ()
    routes: Sequence[Row] = ()
    rollouts: Sequence[Row] = ()
    deaths: Sequence[Row] = ()
    aliases: Sequence[Row] = ()
    trouble: str = ""


def problems(seen: ProblemInputs, now: datetime) -> list[Problem]:
    """A database that takes no changes, dead servers (not while no heartbeat can be written),
    versions that do not answer as they should, whose workers are being restarted, that cannot be
    loaded, or serve what was loaded before because their reload failed, aliases and
    routes that are not in force, kill switches that are on, rollouts that were rolled back, and
    pushes that failed, both lately and followed by no better one."""
    alive = {one["id"] for one in seen.servers if one["alive"] or seen.trouble}
    pushers = {one["id"]: one["pusher"] for one in seen.pushes}
    brought = {one["name"]: pushers.get(one["push"], "") for one in seen.models}
    unwell = {_key(one): one for one in seen.loads if one["health"]["reason_code"] in _ILLS}
    loads = [one for one in seen.loads if _key(one) not in unwell]
    return [
        *_trouble(seen.trouble),
        *_servers(seen.servers, alive),
        *_unwell((one for one in unwell.values() if one["server"] in alive), brought),
        *_loads(loads, alive, brought),
        *_restarting(seen.deaths, loads, brought),
        *_pending(seen, alive, now),
        *_routes(seen.routes),
        *_rollouts(seen.rollouts, now),
        *_pushes(seen.pushes, now),
    ]


def _trouble(why: str) -> list[Problem]:
    title = "nothing can be changed: the control database cannot be used"
    return [Problem("server", title, why, "", "/servers")] if why else []


def _servers(servers: Iterable[Row], alive: Collection[str]) -> list[Problem]:
    return [
        Problem(
            "server",
            f"server {one['id'][:SHORT]} sends no heartbeats",
            "no heartbeat since then; what it serves is unknown",
            one["seen_at"],
            "/servers",
        )
        for one in servers
        if one["id"] not in alive
    ]


def _key(row: Row) -> Key:
    return row["model"], row["version"], row["server"]


def _unwell(rows: Iterable[Row], brought: Mapping[str, str]) -> list[Problem]:
    """Versions that are loaded and do not answer as they should."""
    return [
        Problem(
            "load",
            f"{one['model']} version {one['version']} {_ILLS[one['health']['reason_code']]} "
            f"on server {one['server'][:SHORT]}",
            one["health"]["reason"],
            one["health"]["since"],
            link("/models/{model}", model=one["model"]),
            brought.get(one["model"], ""),
        )
        for one in sorted(rows, key=lambda one: rank(one["health"]["state"]))
    ]


def _restarting(
    deaths: Iterable[Row], loads: Iterable[Row], brought: Mapping[str, str]
) -> list[Problem]:
    """Versions that serve with fewer instances than they have; one without any has failed."""
    ready = {_key(row) for row in loads if row["state"] == UP}
    return [
        Problem(
            "load",
            f"{one['model']} version {one['version']} serves with {one['ready']} of "
            f"{count(one['instances'], 'instance')} on server {one['server'][:SHORT]}",
            f"a worker {one['ending']} at {moment(one['last'])} and is being restarted",
            one["last"],
            link("/models/{model}", model=one["model"]),
            brought.get(one["model"], ""),
        )
        for one in deaths
        if one["ready"] < one["instances"] and _key(one) in ready
    ]


def _loads(loads: Iterable[Row], alive: set[str], brought: Mapping[str, str]) -> list[Problem]:
    """One for each version and reason; versions are told instead of their model where both are,
    and models that have the same reason as a whole together.

    A version that serves has a reason when what was to take its place could not be loaded; a model
    has one when its folder cannot be followed, whatever of it serves.
    """
    found: dict[_LoadKey, list[Row]] = {}
    for row in loads:
        is_wrong = row["state"] == FAILED or (row["state"] == UP and row["reason"])
        if is_wrong and row["server"] in alive:
            found.setdefault((row["model"], row["version"], row["reason"]), []).append(row)
    numbered = {row["model"] for rows in found.values() for row in rows if row["version"]}
    serving = {row["model"] for row in loads if row["version"] and row["state"] == UP}
    told = {
        key: rows
        for key, rows in found.items()
        if key[1] or key[0] not in numbered or key[0] in serving
    }
    together = _of_several(told, serving)
    alone = {key: rows for key, rows in told.items() if not any(key in one for one in together)}
    return [
        *(_several([told[key] for key in keys], keys[0][0] in serving) for keys in together),
        *(_load(rows, key[0] in serving, brought.get(key[0], "")) for key, rows in alone.items()),
    ]


def _of_several(told: Mapping[_LoadKey, Sequence[Row]], serving: set[str]) -> list[list[_LoadKey]]:
    """The keys of models as a whole that have the same reason on the same servers, such as a
    repository that turned empty; two and more of each."""
    groups: dict[tuple[str, bool, frozenset[str]], list[_LoadKey]] = {}
    for key, rows in told.items():
        model, version, reason = key
        if not version:
            servers = frozenset(row["server"] for row in rows)
            groups.setdefault((reason, model in serving, servers), []).append(key)
    return [keys for keys in groups.values() if len(keys) > 1]


def _several(models: Sequence[Sequence[Row]], serve: bool) -> Problem:
    """One problem of several models as a whole; the reason is the same."""
    rows = [row for one in models for row in one]
    servers = ", ".join(sorted({row["server"][:SHORT] for row in rows}))
    names = sorted({row["model"] for row in rows})
    title = (
        f"{len(names)} models {'keep what they serve' if serve else 'failed'} on server {servers}"
    )
    shown = ", ".join(names[:MOST_NAMES]) + (" …" if len(names) > MOST_NAMES else "")
    since = min(row["at"] for row in rows)
    return Problem("load", title, f"{rows[0]['reason']} ({shown})", since, "/models")


def _load(rows: Sequence[Row], serves: bool, who: str) -> Problem:
    first = rows[0]
    model, version = first["model"], first["version"]
    where = "on server " + ", ".join(sorted({row["server"][:SHORT] for row in rows}))
    title = f"{model} version {version} failed {where}"
    if version and first["state"] == UP:
        title = f"the reload of {model} version {version} failed {where}"
    elif not version:
        title = f"{model} {'keeps what it serves' if serves else 'failed'} {where}"
    since = min(row["at"] for row in rows)
    to = link("/models/{model}", model=model)
    return Problem("load", title, first["reason"], since, to, who)


def _pending(seen: ProblemInputs, alive: set[str], now: datetime) -> list[Problem]:
    """Aliases and routes that cannot come into force somewhere, or wait for long."""
    subjects = [
        (f"alias {one['model']}@{one['name']}", _alias_page(one), one) for one in seen.aliases
    ]
    subjects += [
        (f"route {one['name']}", link("/routes/{route}", route=one["name"]), one)
        for one in seen.routes
    ]
    return [
        Problem(
            "route",
            f"{subject} is not in force on server {told['server'][:SHORT]}",
            told["reason"],
            told["at"],
            page,
            one["updated_by"],
        )
        for subject, page, one in subjects
        for told in one["pending"]
        if told["server"] in alive and not _comes_soon(told, now)
    ]


def _alias_page(row: Row) -> str:
    return link("/models/{model}/aliases/{alias}", model=row["model"], alias=row["name"])


def _comes_soon(told: Row, now: datetime) -> bool:
    """A target that loads is no problem yet."""
    waits = told["reason"].startswith("not in force yet")
    return waits and now - datetime.fromisoformat(told["at"]) <= PATIENCE


def _routes(routes: Iterable[Row]) -> list[Problem]:
    return [
        Problem(
            "route",
            f"the kill switch of route {one['name']} is on",
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
            title = f"rollout of {one['name']} to version {one['candidate']} was rolled back"
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
