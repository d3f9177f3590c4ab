"""What an event changed of a route, in words: its weights and its kill switch. Pure."""

from collections.abc import Mapping
from typing import Any

Facts = Mapping[str, Any]


def change_text(event: Facts) -> str:
    """What differs between before and after, "" where an event is not about a route: "weights
    stable 90 → 50 %, candidate 10 → 50 %; kill switch: candidate"."""
    data = event.get("data") or event
    if not str(event.get("subject", "")).startswith("route:"):
        return ""
    before, after = data.get("before") or {}, data.get("after") or {}
    if not before and not after:
        return ""
    parts = [_weights(before, after), _switch(before, after), _others(before, after)]
    return "; ".join(part for part in parts if part)


def _weights(before: Facts, after: Facts) -> str:
    old, new = _shares(before), _shares(after)
    if old == new:
        return ""
    if not before:
        return "weights " + ", ".join(f"{name} {share:g} %" for name, share in new.items())
    shares = [_share(name, old.get(name), new.get(name)) for name in {**old, **new}]
    return "weights " + ", ".join(one for one in shares if one)


def _share(name: str, old: float | None, new: float | None) -> str:
    if old == new:
        return f"{name} {new:g} %"
    was = "none" if old is None else f"{old:g}"
    now = "none" if new is None else f"{new:g} %"
    return f"{name} {was} → {now}"


def _shares(facts: Facts) -> dict[str, float]:
    return {str(arm["name"]): arm["weight"] for arm in facts.get("arms") or ()}


def _switch(before: Facts, after: Facts) -> str:
    old, new = before.get("only"), after.get("only")
    if old == new:
        return ""
    return f"kill switch: {new}" if new else f"kill switch released, was {old}"


def _others(before: Facts, after: Facts) -> str:
    """The names of what else differs of a route that was there and is."""
    if not before or not after:
        return ""
    names = [
        one for one in ("unit", "salt", "matches", "mirrors") if before.get(one) != after.get(one)
    ]
    if _targets(before) != _targets(after):
        names.insert(0, "targets of arms")
    return f"new {', '.join(names)}" if names else ""


def _targets(facts: Facts) -> dict[str, tuple[Any, ...]]:
    rows = facts.get("arms") or ()
    return {arm["name"]: (arm["model"], arm["version"], arm["alias"]) for arm in rows}
