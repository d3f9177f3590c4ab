"""A route as its form has it: arms in rows, rules and mirrors as lines. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from admin_ui.services import ControlApiError

BLANK_ARMS, MOST_ARMS = 2, 16
ARM_PARTS = ("name", "target", "weight")
WHOLE = 10_000
"""Hundredths of a percent."""

Row = Mapping[str, Any]


def target_of(arm: Row) -> str:
    """ "digits:2" or "digits@champion"."""
    alias = arm["alias"]
    return f"{arm['model']}@{alias}" if alias else f"{arm['model']}:{arm['version']}"


def arm_rows(route: Row, form: Mapping[str, str] | None = None) -> list[dict[str, str]]:
    """What stands in the form: the route's arms, or what was typed, and some rows to fill."""
    if form is not None:
        return [{part: form.get(f"arm.{n}.{part}", "") for part in ARM_PARTS} for n in _rows(form)]
    filled = [
        {"name": arm["name"], "target": target_of(arm), "weight": f"{arm['weight']:g}"}
        for arm in route["arms"]
    ]
    blank = min(BLANK_ARMS, MOST_ARMS - len(filled))
    return [*filled, *(dict.fromkeys(ARM_PARTS, "") for _ in range(blank))]


def read_arms(form: Mapping[str, str]) -> list[dict[str, Any]]:
    """The rows that are filled. Raises ControlApiError naming the arm."""
    arms = []
    for number in _rows(form):
        name, target, weight = (form.get(f"arm.{number}.{one}", "").strip() for one in ARM_PARTS)
        if name or target:
            arms.append({**read_target(target, f"the arm '{name}'", "arms"), "name": name})
            arms[-1]["weight"] = percent(weight or "0", f"the weight of '{name}'", "arms")
    check_whole({one["name"]: one["weight"] for one in arms}, "arms")
    return arms


def read_target(text: str, who: str, field: str) -> dict[str, Any]:
    """ "digits:2" or "digits@champion". Raises ControlApiError."""
    model, at, alias = text.rpartition("@")
    if at and model and alias:
        return {"model": model, "alias": alias}
    model, colon, version = text.rpartition(":")
    if colon and model and version.isascii() and version.isdigit() and len(version) < 19:
        return {"model": model, "version": int(version)}
    wrong = f"{who} answers by '{text[:80]}'; give MODEL:VERSION or MODEL@ALIAS, e.g. digits:2"
    raise ControlApiError(422, "invalid", wrong, field)


def percent(text: str, what: str, field: str) -> float:
    """Raises ControlApiError."""
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 <= found <= 100 or abs(round(found * 100) - found * 100) > 1e-6:
        wrong = f"{what} is '{text[:40]}'; a percentage is 0 to 100 with at most two decimals"
        raise ControlApiError(422, "invalid", wrong, field)
    return found


def check_whole(weights: Mapping[str, float], field: str) -> None:
    """Raises ControlApiError when the weights are not 100 % together."""
    total = sum(round(one * 100) for one in weights.values())
    if total != WHOLE:
        shown = " + ".join(f"{name} {share:g}" for name, share in weights.items())
        wrong = f"the weights are {total / 100:g} % together, not 100 %: {shown}"
        raise ControlApiError(422, "invalid", wrong, field)


def rules_text(route: Row) -> str:
    """One rule a line; "*" at the end of a value stands for anything that follows."""
    return "\n".join(
        f"{one['header']}: {one['value']}{'*' if one['prefix'] else ''} -> {one['arm']}"
        for one in route["matches"]
    )


def read_rules(text: str) -> list[dict[str, Any]]:
    """Raises ControlApiError naming the line."""
    return [_rule(number, line) for number, line in _lines(text)]


def mirrors_text(route: Row) -> str:
    return "\n".join(f"{one['arm']} {one['percent']:g}" for one in route["mirrors"])


def read_mirrors(text: str) -> list[dict[str, Any]]:
    """Raises ControlApiError naming the line."""
    found = []
    for number, line in _lines(text):
        arm, _, share = line.rpartition(" ")
        if not arm:
            wrong = f"line {number}: '{line[:80]}' is no mirror; write ARM PERCENT"
            raise ControlApiError(422, "invalid", wrong, "mirrors")
        share = share.removesuffix("%")
        what = f"line {number}: the share of '{arm[:80]}'"
        found.append({"arm": arm.strip(), "percent": percent(share, what, "mirrors")})
    return found


def _rule(number: int, line: str) -> dict[str, Any]:
    condition, arrow, arm = line.rpartition("->")
    header, colon, value = condition.partition(":")
    if not (arrow and colon and header.strip() and value.strip() and arm.strip()):
        wrong = f"line {number}: '{line[:80]}' is no rule; write HEADER: VALUE -> ARM"
        raise ControlApiError(422, "invalid", wrong, "matches")
    text = value.strip()
    return {
        "header": header.strip(),
        "value": text.removesuffix("*"),
        "prefix": text.endswith("*"),
        "arm": arm.strip(),
    }


def _lines(text: str) -> Sequence[tuple[int, str]]:
    lines = enumerate(text.splitlines(), 1)
    return [(number, line.strip()) for number, line in lines if line.strip()]


def _rows(form: Mapping[str, str]) -> list[int]:
    return [n for n in range(MOST_ARMS) if any(f"arm.{n}.{part}" in form for part in ARM_PARTS)]
