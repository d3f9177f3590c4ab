"""Which events people are notified of, and in which words. Pure."""

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from urllib.parse import quote

from control.views import EventView

REPEATED, WITHIN = 3, timedelta(minutes=10)
"""So many failures of a version in that time are a crash loop, as on the console's overview."""

LONGEST_TITLE, LONGEST_REASON = 300, 2_000
_SHORT = 8
_CRASH_LOOP, _RELOAD_FAILED = "crash_loop", "reload_failed"
_NUMBER = re.compile(r"[0-9]+(?:[.,][0-9]+)*")


class NotificationKind(StrEnum):
    """What a webhook can be told of."""

    ROLLED_BACK = "rollout.rolled_back"
    ROLLOUT_PAUSED = "rollout.paused"
    MODEL_FAILED = "model.failed"
    CRASH_LOOPING = "model.crash_looping"
    MODEL_FAILING = "model.failing"
    MODEL_DEGRADED = "model.degraded"
    MODEL_RECOVERED = "model.recovered"
    MODEL_DRIFTED = "model.drifted"
    PUSH_FAILED = "push.failed"
    PUSH_REFUSED = "push.refused"
    IMPORT_FAILED = "import.failed"
    JOB_FAILED = "job.failed"


MEANINGS: Mapping[NotificationKind, str] = {
    NotificationKind.ROLLED_BACK: "a rollout was rolled back, by a guardrail or by a person",
    NotificationKind.ROLLOUT_PAUSED: "a rollout paused by itself: inconclusive, without data, or "
    "waiting for a person",
    NotificationKind.MODEL_FAILED: "a version could not be loaded or reloaded, or stopped serving",
    NotificationKind.CRASH_LOOPING: f"a version failed {REPEATED} times within "
    f"{WITHIN.seconds // 60} minutes, or its workers crash again and again",
    NotificationKind.MODEL_FAILING: "a loaded version does not answer as it should",
    NotificationKind.MODEL_DEGRADED: "a version answers, and worse than it should",
    NotificationKind.MODEL_RECOVERED: "a version that was failing or degraded is well again",
    NotificationKind.MODEL_DRIFTED: "what a version gets or answers has drifted from its reference",
    NotificationKind.PUSH_FAILED: "a push was accepted and could not be served",
    NotificationKind.PUSH_REFUSED: "a push was refused; its pusher has seen why",
    NotificationKind.IMPORT_FAILED: "an import from a URL failed",
    NotificationKind.JOB_FAILED: "an offline job failed, or its result was refused",
}


@dataclass(frozen=True, slots=True)
class Notice:
    """What one event gives people to know. `subject` and `event`: the event's. `models`: whom it
    is about, empty where that is not known. `version` 0: no version in particular. `page`: the path
    of the console's page that tells more. `actor`: whose doing it was, "" for the server's own."""

    kind: NotificationKind
    event: int
    at: datetime
    subject: str
    models: tuple[str, ...]
    version: int
    title: str
    reason: str
    page: str
    actor: str = ""

    @property
    def key(self) -> str:
        """Equal for notices that say the same of the same thing. Numbers within the reason, such as
        rates and process ids, do not tell two reasons apart."""
        reason = "" if self.kind in _WITHOUT_REASON else _NUMBER.sub("#", self.reason)
        parts = (self.kind, self.subject, self.models, self.version, reason)
        return hashlib.sha256(repr(parts).encode()).hexdigest()


_WITHOUT_REASON = (NotificationKind.CRASH_LOOPING, NotificationKind.MODEL_RECOVERED)
"""These are the same whatever was said of the last crash."""


ABOUT_VERSIONS = frozenset(
    {
        NotificationKind.MODEL_FAILED,
        NotificationKind.CRASH_LOOPING,
        NotificationKind.MODEL_FAILING,
        NotificationKind.MODEL_DEGRADED,
    }
)
"""What an acknowledged problem of a version keeps from being told."""


def is_failure(event: EventView) -> bool:
    """Whether it is a failure that `notice_of` wants counted."""
    is_load = event.kind == "load.changed"
    return is_load and event.data.get("state") == "FAILED" and bool(event.data.get("version"))


def notice_of(event: EventView, failures: int = 1) -> Notice | None:
    """The notice an event gives, None for most. `failures`: how often the same version has failed
    on that server within `WITHIN`, this time counted; needed where `is_failure`."""
    make = _MAKERS.get(event.kind)
    return make(event, failures) if make is not None else None


def is_person(actor: str) -> bool:
    return actor.startswith(("user:", "local:"))


def _rolled_back(event: EventView, _: int) -> Notice:
    after = event.data.get("after") or {}
    model, candidate = _text(event, "model"), int(after.get("candidate") or 0)
    name, stable = _text(event, "name") or model, after.get("stable")
    if event.data.get("rollback"):
        title = f"{name} could not be rolled back to version {candidate}"
        return _notice(event, NotificationKind.ROLLED_BACK, _models(name, model), candidate, title)
    to = f" to version {stable}" if stable else ""
    title = f"{name} rolled back from version {candidate}{to}"
    return _notice(event, NotificationKind.ROLLED_BACK, _models(name, model), candidate, title)


def _rollback_healthy(event: EventView, _: int) -> Notice | None:
    """A rollout to a version that answered before; any other that ends well calls nobody."""
    if not event.data.get("rollback"):
        return None
    after = event.data.get("after") or {}
    model, left = _text(event, "model"), int(after.get("stable") or 0)
    name = _text(event, "name") or model
    title = f"{name} rolled back from version {left} to version {after.get('candidate')}"
    return _notice(event, NotificationKind.ROLLED_BACK, _models(name, model), left, title)


def _paused(event: EventView, _: int) -> Notice | None:
    """A person who pauses one knows; nobody is called for that."""
    if is_person(event.actor):
        return None
    after = event.data.get("after") or {}
    model, candidate = _text(event, "model"), int(after.get("candidate") or 0)
    name = _text(event, "name") or model
    title = f"rollout of {name} to version {candidate} paused"
    return _notice(event, NotificationKind.ROLLOUT_PAUSED, _models(name, model), candidate, title)


def _load(event: EventView, failures: int) -> Notice | None:
    """A version that serves has a reason when what was to take its place could not be loaded."""
    state, reason = event.data.get("state"), _text(event, "reason")
    version, model = int(event.data.get("version") or 0), event.subject.partition(":")[2]
    if not reason or state not in ("FAILED", "READY"):
        return None
    which = f"{model} version {version}" if version else model
    where = f"on server {_text(event, 'server')[:_SHORT]}"
    kind, title = NotificationKind.MODEL_FAILED, f"{which} failed {where}"
    if state == "READY":
        title = f"the reload of {which} failed {where}; what was loaded before serves on"
    elif version and failures >= REPEATED:
        kind = NotificationKind.CRASH_LOOPING
        title = f"{which} fails repeatedly {where}"
    page = f"/models/{quote(model, safe='')}"
    return _notice(event, kind, (model,), version, title, reason, page)


def _health(kind: NotificationKind, words: str) -> Callable[[EventView, int], Notice | None]:
    """What a version answers, as gateways judge it. A reload that failed is told by its load."""

    def notice(event: EventView, _: int) -> Notice | None:
        code, version = _text(event, "reason_code"), int(event.data.get("version") or 0)
        if code == _RELOAD_FAILED:
            return None
        is_loop = code == _CRASH_LOOP
        model, server = event.subject.partition(":")[2], _text(event, "server")[:_SHORT]
        said = "crashes again and again" if is_loop else words
        return _notice(
            event,
            NotificationKind.CRASH_LOOPING if is_loop else kind,
            (model,),
            version,
            f"{model} version {version} {said} on server {server}",
            _text(event, "reason"),
            f"/models/{quote(model, safe='')}",
        )

    return notice


def _drifted(event: EventView, _: int) -> Notice:
    version, model = int(event.data.get("version") or 0), event.subject.partition(":")[2]
    title = f"{model} version {version} has drifted"
    page = f"/models/{quote(model, safe='')}/drift"
    reason = _text(event, "reason")
    return _notice(event, NotificationKind.MODEL_DRIFTED, (model,), version, title, reason, page)


def _push(kind: NotificationKind, ended: str) -> Callable[[EventView, int], Notice]:
    def notice(event: EventView, _: int) -> Notice:
        after = event.data.get("after") or {}
        where = _text(event, "repository") or after.get("repository") or ""
        models = tuple(sorted(event.data.get("models") or {}))
        what = f"push to {where}" if where else f"push of {', '.join(models)}"
        reason = str(after.get("reason") or "")
        page = f"/pushes/{event.subject.partition(':')[2]}"
        return _notice(event, kind, models, 0, f"{what} {ended}", reason, page)

    return notice


def _import(event: EventView, _: int) -> Notice:
    model, after = _text(event, "model"), event.data.get("after") or {}
    title, reason = f"import of {model} failed", str(after.get("reason") or "")
    return _notice(event, NotificationKind.IMPORT_FAILED, (model,), 0, title, reason, "/models")


def _job(event: EventView, _: int) -> Notice:
    model, after = _text(event, "model"), event.data.get("after") or {}
    title = f"{_text(event, 'type')} of {model} failed"
    reason, version = str(after.get("reason") or ""), int(event.data.get("version") or 0)
    page = f"/jobs/{event.subject.partition(':')[2]}"
    return _notice(event, NotificationKind.JOB_FAILED, (model,), version, title, reason, page)


def _notice(
    event: EventView,
    kind: NotificationKind,
    models: tuple[str, ...],
    version: int,
    title: str,
    reason: str | None = None,
    page: str = "",
) -> Notice:
    """Without a reason and a page: a rollout's own."""
    return Notice(
        kind=kind,
        event=event.id,
        at=event.at,
        subject=event.subject,
        models=models,
        version=version,
        title=title[:LONGEST_TITLE],
        reason=(_text(event, "words") if reason is None else reason)[:LONGEST_REASON],
        page=page or f"/rollouts/{event.subject.partition(':')[2]}",
        actor=event.actor if is_person(event.actor) else "",
    )


def _models(name: str, model: str) -> tuple[str, ...]:
    """A route and the model it leads to; often both have the same name."""
    return (name,) if name == model else (name, model)


def _text(event: EventView, name: str) -> str:
    return str(event.data.get(name) or "")


_MAKERS: Mapping[str, Callable[[EventView, int], Notice | None]] = {
    "rollout.abort": _rolled_back,
    "rollout.healthy": _rollback_healthy,
    "rollout.pause": _paused,
    "load.changed": _load,
    "model.failing": _health(NotificationKind.MODEL_FAILING, "is failing"),
    "model.degraded": _health(NotificationKind.MODEL_DEGRADED, "is degraded"),
    "model.recovered": _health(NotificationKind.MODEL_RECOVERED, "is well again"),
    "model.drifted": _drifted,
    "push.failed": _push(NotificationKind.PUSH_FAILED, "was not served"),
    "push.refused": _push(NotificationKind.PUSH_REFUSED, "was refused"),
    "import.failed": _import,
    "job.failed": _job,
}
KINDS_OF_EVENTS = tuple(_MAKERS)
"""The events that may give a notice."""
