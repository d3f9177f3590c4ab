"""What is wrong now, the worst first: decided from what the database and the gateway tell. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from control.drift.findings import RaisedDrift
from control.drift.service import UnusableProfile
from control.gateways.queries import VersionCrashes
from control.health import CRASH_LOOP, ERRORS, FAILED, QUEUE_FULL, QUEUE_TIME, READY, SLOW, rank
from control.problems.problem import SHORT, Problem, Verb
from control.rollouts.views import RolloutView
from control.text import link
from control.views import LoadView, PushView, ServerView

TAKEN_BACK = ("degraded", "aborting")
LATELY = timedelta(days=1)
PATIENCE = timedelta(minutes=1)
"""How long an alias or route may wait for a version that loads."""

ILLS = {
    CRASH_LOOP: Verb("crashes repeatedly", "crash repeatedly"),
    ERRORS: Verb("fails requests", "fail requests"),
    QUEUE_FULL: Verb("refuses requests", "refuse requests"),
    SLOW: Verb("is slower than on its last day", "are slower than on their last day"),
    QUEUE_TIME: Verb("lets requests wait", "let requests wait"),
}
"""What a version does that is loaded and not well, by the reason code of its health."""

_SILENT = Verb("sends no heartbeats", "send no heartbeats", "servers")
_FAILED = Verb("failed", "failed")
_MODEL_FAILED = Verb("failed", "failed", "models")
_NOT_RELOADED = Verb("could not be reloaded", "could not be reloaded")
_KEEPS = Verb("keeps what it serves", "keep what they serve", "models")
_NOT_IN_FORCE = Verb("is not in force", "are not in force", "aliases and routes")
_KILLED = Verb("has its kill switch on", "have their kill switches on", "routes")
_ROLLED_BACK = Verb("was rolled back", "were rolled back", "rollouts")
_DRIFTED = Verb("has drifted", "have drifted")
_BAD_PROFILE = Verb(
    "has a drift profile that cannot be used", "have drift profiles that cannot be used"
)
_BAD_ENDS = {
    "failed": Verb("was not served", "were not served", "pushes"),
    "refused": Verb("was refused", "were refused", "pushes"),
}


@dataclass(frozen=True, slots=True)
class NotInForce:
    """An alias or a route ("alias m@champion") that is not in force; `by` wanted it."""

    subject: str
    server: str
    reason: str
    at: datetime
    by: str


@dataclass(frozen=True, slots=True)
class KilledRoute:
    """A route whose kill switch is on: all of it goes to the arm `only`."""

    name: str
    only: str
    at: datetime
    by: str


@dataclass(frozen=True, slots=True)
class ProblemFacts:
    """What is looked at. `pushes` and `rollouts` are the latest, newest first; `brought`: whose
    push a model came with; `crashes`: of workers of `server`, where its gateway told; `trouble`:
    why nothing can be changed just now, "" while all is well."""

    loads: Sequence[LoadView]
    servers: Sequence[ServerView]
    brought: Mapping[str, str]
    pushes: Sequence[PushView] = ()
    rollouts: Sequence[RolloutView] = ()
    pending: Sequence[NotInForce] = ()
    killed: Sequence[KilledRoute] = ()
    crashes: Sequence[VersionCrashes] = ()
    server: str = ""
    trouble: str = ""
    drifted: Sequence[RaisedDrift] = ()
    profiles: Sequence[UnusableProfile] = ()


def problems(facts: ProblemFacts, now: datetime) -> list[Problem]:
    """A database that takes no changes, dead servers (not while no heartbeat can be written),
    versions that do not answer as they should, that cannot be loaded, serve what was loaded before
    because their reload failed, or whose workers are being restarted, aliases and routes that are
    not in force, kill switches that are on, versions that have drifted or have no profile to be
    compared with, rollouts that were rolled
    back, and pushes that failed, both lately and followed by no better one."""
    alive = {one.id for one in facts.servers if one.alive or facts.trouble}
    loads = [one for one in facts.loads if one.server in alive]
    return [
        *_trouble(facts.trouble),
        *_silent(one for one in facts.servers if one.id not in alive),
        *_unwell(loads, facts.brought),
        *_not_loaded(loads, facts.brought),
        *_restarting(facts, loads),
        *_not_in_force(facts.pending, alive, now),
        *_killed(facts.killed),
        *_drift(facts.drifted, facts.brought),
        *_profiles(facts.profiles, facts.brought),
        *_rolled_back(facts.rollouts, now),
        *_pushes(facts.pushes, now),
    ]


def _trouble(why: str) -> list[Problem]:
    cannot = Verb("cannot be used: nothing can be changed", "")
    return [Problem("server", "the control database", cannot, why, "/servers")] if why else []


def _silent(servers: Iterable[ServerView]) -> list[Problem]:
    why = "no heartbeat since then; what it serves is unknown"
    return [
        Problem(
            "server", f"server {one.id[:SHORT]}", _SILENT, why, "/servers", one.seen_at, name=one.id
        )
        for one in servers
    ]


def _unwell(loads: Iterable[LoadView], brought: Mapping[str, str]) -> list[Problem]:
    """Versions that are loaded and do not answer as they should. Their sentences have numbers of
    their own: only those of one version on several servers are one."""
    unwell = [one for one in loads if one.health.reason_code in ILLS]
    return [
        Problem(
            "health",
            f"{one.model} version {one.version}",
            ILLS[one.health.reason_code],
            one.health.reason,
            _model_page(one.model),
            one.health.since,
            one.server,
            one.model,
            brought.get(one.model, ""),
            same=f"{one.model} {one.version}",
        )
        for one in sorted(unwell, key=lambda one: rank(one.health.state))
    ]


def _not_loaded(loads: Sequence[LoadView], brought: Mapping[str, str]) -> list[Problem]:
    """Versions are told instead of their model where both are.

    A version that serves has a reason when what was to take its place could not be loaded; a model
    has one when its folder cannot be followed, whatever of it serves.
    """
    wrong = [
        one
        for one in loads
        if one.health.reason_code not in ILLS
        and (one.state == FAILED or (one.state == READY and one.reason))
    ]
    numbered = {one.model for one in wrong if one.version}
    serving = {one.model for one in loads if one.version and one.state == READY}
    return [
        _load(one, one.model in serving, brought.get(one.model, ""))
        for one in wrong
        if one.version or one.model not in numbered or one.model in serving
    ]


def _load(one: LoadView, serves: bool, who: str) -> Problem:
    subject, verb = f"{one.model} version {one.version}", _FAILED
    if one.version and one.state == READY:
        verb = _NOT_RELOADED
    elif not one.version:
        subject, verb = one.model, _KEEPS if serves else _MODEL_FAILED
    page = _model_page(one.model)
    since = one.health.since
    return Problem("load", subject, verb, one.reason, page, since, one.server, one.model, who)


def _restarting(facts: ProblemFacts, loads: Iterable[LoadView]) -> list[Problem]:
    """Versions that serve with fewer instances than they have; one without any has failed."""
    ready = {
        (one.model, one.version)
        for one in loads
        if one.server == facts.server and one.health.state == READY
    }
    return [
        Problem(
            "load",
            f"{one.model} version {one.version}",
            Verb(f"serves with {one.ready} of {one.instances} instances", "serve with fewer"),
            f"a worker {one.ending} and is being restarted",
            _model_page(one.model),
            datetime.fromtimestamp(one.last, UTC),
            facts.server,
            one.model,
            facts.brought.get(one.model, ""),
        )
        for one in facts.crashes
        if one.ready < one.instances and (one.model, one.version) in ready
    ]


def _not_in_force(pending: Iterable[NotInForce], alive: set[str], now: datetime) -> list[Problem]:
    """Aliases and routes that cannot come into force somewhere, or wait for long."""
    return [
        Problem(
            "route", one.subject, _NOT_IN_FORCE, one.reason, _page_of(one.subject), one.at,
            one.server, one.subject, one.by, same=f"{one.subject} {one.reason}",
        )
        for one in pending
        if one.server in alive and not _comes_soon(one, now)
    ]  # fmt: skip


def _comes_soon(one: NotInForce, now: datetime) -> bool:
    """A target that loads is no problem yet."""
    return one.reason.startswith("not in force yet") and now - one.at <= PATIENCE


def _page_of(subject: str) -> str:
    kind, _, name = subject.partition(" ")
    model, _, alias = name.partition("@")
    if kind == "alias":
        return link("/models/{model}/aliases/{alias}", model=model, alias=alias)
    return link("/routes/{route}", route=name)


def _killed(routes: Iterable[KilledRoute]) -> list[Problem]:
    return [
        Problem(
            "route",
            f"route {one.name}",
            _KILLED,
            f"every request goes to {one.only}, whatever the weights and rules say",
            link("/routes/{route}", route=one.name),
            one.at,
            name=one.name,
            by=one.by,
            same=one.name,
        )
        for one in routes
    ]


def _drift(drifted: Iterable[RaisedDrift], brought: Mapping[str, str]) -> list[Problem]:
    return [
        Problem(
            "drift",
            f"{one.model} version {one.version}",
            _DRIFTED,
            one.words,
            link("/models/{model}/drift", model=one.model),
            one.since,
            name=one.model,
            by=brought.get(one.model, ""),
            same=f"{one.model} {one.version}",
        )
        for one in drifted
    ]


def _profiles(found: Iterable[UnusableProfile], brought: Mapping[str, str]) -> list[Problem]:
    return [
        Problem(
            "drift",
            f"{one.model} version {one.version}",
            _BAD_PROFILE,
            one.why,
            link("/models/{model}/drift", model=one.model),
            one.at,
            name=one.model,
            by=brought.get(one.model, ""),
        )
        for one in found
    ]


def _rolled_back(rollouts: Iterable[RolloutView], now: datetime) -> list[Problem]:
    told, settled = [], set()
    for one in rollouts:
        at = one.finished_at or one.updated_at
        if one.phase in TAKEN_BACK and one.name not in settled and now - at <= LATELY:
            subject = f"rollout of {one.name} to version {one.candidate}"
            page = link("/rollouts/{rollout}", rollout=one.id)
            told.append(
                Problem("rollout", subject, _ROLLED_BACK, one.reason, page, at, name=one.name,
                        by=one.by, same=one.id)
            )  # fmt: skip
        settled.add(one.name)
    return told


def _pushes(pushes: Iterable[PushView], now: datetime) -> list[Problem]:
    """`pushes` come newest first."""
    told, settled = [], set()
    for one in pushes:
        ref = one.repository, one.ref
        at = one.finished_at or one.received_at
        if one.state in _BAD_ENDS and ref not in settled and now - at <= LATELY:
            page = link("/pushes/{push}", push=one.id)
            why = one.reason or _first(one.report)
            told.append(
                Problem("push", f"push to {one.repository}", _BAD_ENDS[one.state], why, page, at,
                        name=one.repository, by=one.pusher)
            )  # fmt: skip
        settled.add(ref)
    return told


def _first(report: str) -> str:
    """The first lines of a report."""
    return "\n".join(line for line in report.splitlines()[:3] if line.strip())


def _model_page(model: str) -> str:
    return link("/models/{model}", model=model)
