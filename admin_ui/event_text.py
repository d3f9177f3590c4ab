"""Events in words: one sentence for each kind we know, the kind itself for others. Pure."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from admin_ui.text import job_type, plain
from control.rollouts.state import Transition
from control.routes.event_text import change_text

SHORT = 8
"""Characters of a server's id that tell it from others."""

PHASES = {"degraded": "rolled back", "aborting": "rolling back", "step": "in a step"}
"""Of rollouts, whose words are others than their names."""

Event = Mapping[str, Any]


def words(event: Event) -> str:
    """One line about an event or an audit row, without markup."""
    kind = event.get("kind") or event.get("action") or ""
    subject = str(event["subject"])
    made = _SENTENCES.get(str(kind))
    thing = subject.partition(":")[2] or subject
    if made is not None:
        return made(thing, event.get("data") or event)
    family, _, what = str(kind).partition(".")
    return f"{family} {thing} {what.replace('_', ' ')}".strip()


def merge_events(events: Sequence[Event]) -> list[Event]:
    """The events that say something, those in a row that say the same of models as a whole as one:
    its subject has their names."""
    found: list[Event] = []
    for event in filter(is_told, events):
        last = found[-1] if found else None
        if last is not None and _is_same(last, event):
            found[-1] = {**last, "subject": f"{last['subject']}, {_thing(event)}"}
        else:
            found.append(event)
    return found


_PASSING = ("LOADING", "DRAINING")


def is_told(event: Event) -> bool:
    """Whether a list of events is better with it: that an experiment was measured is for its chart,
    how a load ends says that it began, and a rollout's abort says how it ended."""
    kind, data = event["kind"], event.get("data") or {}
    if kind == "load.changed":
        return data.get("state") not in _PASSING
    passing = ("experiment.measured", "job.progress", "rollout.degrade", "user.password_rehashed")
    return kind not in passing


def _is_same(one: Event, other: Event) -> bool:
    of_models = one["kind"] == other["kind"] and one["kind"] in ("load.changed", "load.gone")
    return bool(of_models and not one["data"].get("version") and one["data"] == other["data"])


def _thing(event: Event) -> str:
    return str(event["subject"]).partition(":")[2]


def _load(thing: str, data: Mapping[str, Any]) -> str:
    version = data.get("version")
    reason = f": {data['reason']}" if data.get("reason") else ""
    if not version and reason:  # what is loaded of it may keep serving
        return f"{thing} on {_server(data)}{reason}"
    which = f"{thing} version {version}" if version else thing
    state = str(data.get("state", "?")).lower()
    if state == "failed":
        return f"{which} failed on {_server(data)}{reason}"
    return f"{which} is {state} on {_server(data)}" + reason * (data.get("reason") != state)


def _reloaded(thing: str, data: Mapping[str, Any]) -> str:
    return f"{thing} version {data.get('version')} was loaded again on {_server(data)}"


def _health(thing: str, data: Mapping[str, Any]) -> str:
    version, state = data.get("version"), str(data.get("state", "?")).lower()
    which = f"{thing} version {version} on {_server(data)}"
    if state == "ready":
        return f"{which} answers as it should again"
    return f"{which} is {state}: {data.get('reason', '')}"


def _drifted(thing: str, data: Mapping[str, Any]) -> str:
    return f"{thing} version {data.get('version')} has drifted: {data.get('reason', '')}"


def _drift_ended(thing: str, data: Mapping[str, Any]) -> str:
    return f"{thing} version {data.get('version')} has not drifted any more"


def _drift_reference(thing: str, data: Mapping[str, Any]) -> str:
    return f"drift of {thing} is measured from {(data.get('after') or {}).get('words', '?')}"


def _acknowledged(thing: str, data: Mapping[str, Any]) -> str:
    note = (data.get("after") or {}).get("note")
    return f"{_title(data, 'after', thing)}: acknowledged" + (f", “{note}”" if note else "")


def _title(data: Mapping[str, Any], where: str, thing: str) -> str:
    return str((data.get(where) or {}).get("title") or thing)


def _deployed(thing: str, data: Mapping[str, Any]) -> str:
    """What of it is deployed now, and of which commit or URL."""
    after = data.get("after") or {}
    versions = [str(one) for one in after.get("versions") or ()]
    which = f" with version{'s' if len(versions) > 1 else ''} {', '.join(versions)}"
    source = str(after.get("commit") or "")[:10]
    return f"{thing} deployed" + which * bool(versions) + (f", commit {source}" if source else "")


def _added(thing: str, data: Mapping[str, Any]) -> str:
    model, _, number = thing.rpartition("@")
    return f"{model} version {number} is new"


def _experiment(what: str) -> Callable[[str, Mapping[str, Any]], str]:
    def sentence(thing: str, data: Mapping[str, Any]) -> str:
        decision = data.get("decision")
        return f"experiment {thing} {what}" + (f": {decision}" if decision else "")

    return sentence


def _settings(thing: str, data: Mapping[str, Any]) -> str:
    """Which of them, from what to what."""
    before, after = data.get("before") or {}, data.get("after") or {}
    moved = [
        f"{name} {plain(before.get(name))} → {plain(after[name])}"
        for name in after
        if before.get(name) != after[name]
    ]
    return f"repository {thing}: " + (", ".join(moved) or "changed")


def _server(data: Mapping[str, Any]) -> str:
    return f"server {str(data.get('server', '?'))[:SHORT]}"


def _unloaded(thing: str, data: Mapping[str, Any]) -> str:
    version = data.get("version")
    if not version:
        return f"{thing} as a whole has no problem any more on {_server(data)}"
    return f"{thing} version {version} is unloaded from {_server(data)}"


def _push(state: str) -> Callable[[str, Mapping[str, Any]], str]:
    def sentence(thing: str, data: Mapping[str, Any]) -> str:
        where = data.get("repository") or (data.get("after") or {}).get("repository")
        models = ", ".join(sorted(data.get("models") or {}))
        of, to = f" of {models}" * bool(models), f" to {where}" * bool(where)
        return f"push{of}{to} {state}" if of or to else f"push {thing} {state}"

    return sentence


def _alias(verb: str) -> Callable[[str, Mapping[str, Any]], str]:
    def sentence(thing: str, data: Mapping[str, Any]) -> str:
        version = data.get("version") or (data.get("after") or {}).get("version")
        return f"alias {thing} {verb}" + (f" version {version}" if version else "")

    return sentence


def _rollout(thing: str, data: Mapping[str, Any]) -> str:
    after = data.get("after") or {}
    if data.get("words") or not after.get("phase"):
        return f"rollout of {data.get('name') or thing}: {data.get('words') or 'changed'}"
    phase = PHASES.get(str(after["phase"]), str(after["phase"]))
    reason = str(after.get("reason") or "")
    what = reason if reason.startswith(phase) else f"{phase}: {reason}" if reason else phase
    where = f"version {after.get('candidate')} at {after.get('weight') or 0:g} %"
    return f"rollout of {after.get('name') or thing}: {where}, {what}"


def _residency(what: str) -> Callable[[str, Mapping[str, Any]], str]:
    return lambda thing, data: f"{thing} was {what} by hand"


def _token(what: str) -> Callable[[str, Mapping[str, Any]], str]:
    def sentence(thing: str, data: Mapping[str, Any]) -> str:
        facts = data.get("after") or data.get("before") or {}
        owner = f" of {facts['user']}" if facts.get("user") else ""
        return f"token {facts.get('name') or thing}{owner} {what}"

    return sentence


_JOB_STATES = {
    "queued": "waits for a worker",
    "publishing": "is being published",
    "done": "is done",
    "failed": "has failed",
    "cancelling": "is being cancelled",
}


def _job(state: str) -> Callable[[str, Mapping[str, Any]], str]:
    def sentence(thing: str, data: Mapping[str, Any]) -> str:
        what = job_type(str(data.get("type", "")))
        of = f" of {data['model']} version {data['version']}" if data.get("model") else f" {thing}"
        reason = (data.get("after") or {}).get("reason")
        said = _JOB_STATES.get(state, f"is {state}")
        return f"{what} job{of} {said}".strip() + (f": {reason}" if reason else "")

    return sentence


def _job_progress(thing: str, data: Mapping[str, Any]) -> str:
    of = f"{job_type(str(data.get('type', '')))} job of {data.get('model', thing)}".strip()
    return f"{of}: {(data.get('fraction') or 0) * 100:.0f} %, {data.get('progress', '')}"


def _pipeline(state: str) -> Callable[[str, Mapping[str, Any]], str]:
    def sentence(thing: str, data: Mapping[str, Any]) -> str:
        of = f" of {data['model']} version {data['version']}" if data.get("model") else f" {thing}"
        reason = (data.get("after") or {}).get("reason")
        said = {"begun": "has begun", "failed": "has failed"}.get(state, f"is {state}")
        return f"pipeline{of} {said}" + (f": {reason}" if reason else "")

    return sentence


def _pending(kind: str) -> Callable[[str, Mapping[str, Any]], str]:
    return lambda thing, data: f"{kind} {thing} on {_server(data)}: {data.get('reason', '')}"


def _in_force(kind: str) -> Callable[[str, Mapping[str, Any]], str]:
    return lambda thing, data: f"{kind} {thing} is in force on {_server(data)}"


def _route(what: str) -> Callable[[str, Mapping[str, Any]], str]:
    def sentence(thing: str, data: Mapping[str, Any]) -> str:
        change = change_text({"subject": f"route:{thing}", "data": data})
        return f"route {thing} {what}" + (f": {change}" if change else "")

    return sentence


def _muted(data: Mapping[str, Any]) -> str:
    """An event has the model, an audit row only what changed."""
    model = data.get("model") or (data.get("after") or data.get("before") or {}).get("model")
    return "all models" if model == "*" else str(model)


def _delivery(what: str) -> Callable[[str, Mapping[str, Any]], str]:
    def sentence(thing: str, data: Mapping[str, Any]) -> str:
        reason = f" ({data['reason']})" if data.get("reason") else ""
        title = data.get("title") or thing
        return f"notification to {data.get('webhook')} {what}{reason}: {title}"

    return sentence


_SENTENCES: dict[str, Callable[[str, Mapping[str, Any]], str]] = {
    "drift.watched": lambda thing, _: f"drift of {thing} is watched",
    "drift.changed": lambda thing, _: f"drift of {thing} is watched on other terms",
    "drift.unwatched": lambda thing, _: f"drift of {thing} is not watched any more",
    "drift.reference": _drift_reference,
    "model.drifted": _drifted,
    "model.drift_ended": _drift_ended,
    "load.changed": _load,
    "load.gone": _unloaded,
    "load.reloaded": _reloaded,
    **{f"model.{what}": _health for what in ("failing", "degraded", "recovered")},
    **{f"job.{state}": _job(state) for state in ("running", "cancelled", *_JOB_STATES)},
    "job.progress": _job_progress,
    **{
        f"pipeline.{state}": _pipeline(state)
        for state in ("begun", "running", "done", "failed", "cancelled")
    },
    "model.deployed": _deployed,
    "model.undeployed": lambda thing, data: f"{thing} is not deployed any more",
    "version.added": _added,
    **{
        f"experiment.{what}": _experiment(what)
        for what in ("created", "started", "stopped", "concluded", "deleted")
    },
    "repository.changed": _settings,
    "server.started": lambda thing, data: f"server {thing[:SHORT]} started, {data.get('version')}",
    "server.forgotten": lambda thing, data: f"server {thing[:SHORT]} is forgotten",
    "alias.created": _alias("created for"),
    "alias.moved": _alias("moved to"),
    "alias.pending": _pending("alias"),
    "alias.in_force": _in_force("alias"),
    **{f"route.{what}": _route(what) for what in ("created", "changed", "deleted")},
    "route.killed": _route("killed"),
    "route.unkilled": _route("released"),
    "route.pending": _pending("route"),
    "route.in_force": _in_force("route"),
    **{
        f"push.{state}": _push(state)
        for state in ("received", "accepted", "deployed", "served", "failed", "refused", "stored")
    },
    **{f"rollout.{transition}": _rollout for transition in Transition},
    "delivery.delivered": _delivery("delivered"),
    "delivery.failed": _delivery("given up"),
    "delivery.muted": _delivery("muted"),
    "delivery.retried": lambda thing, data: f"notification {thing} is sent again by hand",
    "webhook.failing": lambda thing, data: f"webhook {thing} fails: {data.get('reason', '')}",
    "webhook.rotated": lambda thing, data: f"webhook {thing} has a new secret",
    "webhook.tested": lambda thing, data: f"a test message was sent to webhook {thing}",
    "mute.created": lambda thing, data: f"notifications about {_muted(data)} muted",
    "mute.deleted": lambda thing, data: f"notifications about {_muted(data)} no longer muted",
    **{
        f"residency.{done}": _residency(done)
        for done in ("pinned", "unpinned", "evicted", "loaded")
    },
    "sampling.started": lambda thing, data: f"requests of {thing} are sampled",
    "sampling.stopped": lambda thing, data: f"requests of {thing} are no longer sampled",
    "problem.acknowledged": _acknowledged,
    "problem.unacknowledged": lambda thing, data: (
        f"{_title(data, 'before', thing)}: not acknowledged any more"
    ),
    "token.created": _token("created"),
    "token.revoked": _token("revoked"),
    "session.opened": lambda thing, data: f"{thing} logged in",
    "session.closed": lambda thing, data: f"{thing} logged out",
}
