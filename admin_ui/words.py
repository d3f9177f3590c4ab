"""Events in words: one sentence for each kind we know, the kind itself for others. Pure."""

from collections.abc import Callable, Mapping
from typing import Any

from control.rollouts.state import Transition

SHORT = 8
"""Characters of a server's id that tell it from others."""

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


def _load(thing: str, data: Mapping[str, Any]) -> str:
    version = data.get("version")
    which = f"{thing} version {version}" if version else thing
    reason = f": {data['reason']}" if data.get("reason") else ""
    state = str(data.get("state", "?")).lower()
    return f"{which} is {state} on {_server(data)}{reason}"


def _server(data: Mapping[str, Any]) -> str:
    return f"server {str(data.get('server', '?'))[:SHORT]}"


def _gone(thing: str, data: Mapping[str, Any]) -> str:
    version = data.get("version")
    which = f"{thing} version {version}" if version else thing
    return f"{which} is gone from {_server(data)}"


def _push(state: str) -> Callable[[str, Mapping[str, Any]], str]:
    def sentence(thing: str, data: Mapping[str, Any]) -> str:
        where = (data.get("after") or {}).get("repository")
        models = ", ".join(sorted(data.get("models") or {}))
        what = f"push to {where}" if where else f"push of {models}" if models else f"push {thing}"
        return f"{what} {state}"

    return sentence


def _alias(verb: str) -> Callable[[str, Mapping[str, Any]], str]:
    def sentence(thing: str, data: Mapping[str, Any]) -> str:
        version = data.get("version") or (data.get("after") or {}).get("version")
        return f"alias {thing} {verb}" + (f" version {version}" if version else "")

    return sentence


def _rollout(thing: str, data: Mapping[str, Any]) -> str:
    return f"rollout of {data.get('name') or thing}: {data.get('words') or 'it moved'}"


_SENTENCES: dict[str, Callable[[str, Mapping[str, Any]], str]] = {
    "load.changed": _load,
    "load.gone": _gone,
    "alias.created": _alias("made for"),
    "alias.moved": _alias("moved to"),
    **{
        f"push.{state}": _push(state)
        for state in ("received", "accepted", "deployed", "served", "failed", "refused", "stored")
    },
    **{f"rollout.{transition}": _rollout for transition in Transition},
    "sampling.started": lambda thing, data: f"requests of {thing} are sampled",
    "sampling.stopped": lambda thing, data: f"requests of {thing} are sampled no more",
    "session.opened": lambda thing, data: f"{thing} logged in",
    "session.closed": lambda thing, data: f"{thing} logged out",
}
