"""What may be written for a route: arms and their weights, the unit, rules, mirrors. Pure.

Weights travel in percent with two decimals and are kept in buckets of 10,000. Whether models,
versions and aliases exist is not asked here but in `control.routes.service`.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from control.desired import DesiredArm, Match, Mirror
from control.errors import Invalid
from control.message_faults import Fault, fault_in
from control.routes.buckets import BUCKETS
from control.text import stored_json
from control.views import ArmOfRoute, MirrorOfRoute, RuleOfRoute

MOST_ARMS, MOST_MATCHES, MOST_MIRRORS = 16, 32, 4
LONGEST_SALT, LONGEST_VALUE = 64, 256

HEADER, PARAMETER, KEY, SEQUENCE = "header", "parameter", "key", "sequence"
"""Where a request's unit is found; the first two are followed by ":" and a name."""

_ARM = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_HEADER = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]{1,100}")
_PER_PERCENT = BUCKETS // 100


class RouteSpec(Struct, frozen=True):
    """A route as somebody wants it. The first arm is the stable one. `unit` is "" for a draw per
    request, else as in `check_unit`; `salt` "" stands for the one there is, or a new one."""

    arms: tuple[DesiredArm, ...]
    unit: str = ""
    salt: str = ""
    matches: tuple[Match, ...] = ()
    mirrors: tuple[Mirror, ...] = ()


def checked(spec: RouteSpec) -> RouteSpec:
    """The spec with header names in lower case. Raises Invalid naming what cannot be."""
    _check_arms(spec.arms)
    names = [arm.name for arm in spec.arms]
    if len(spec.salt) > LONGEST_SALT or not spec.salt.isprintable():
        raise Invalid(f"a salt has at most {LONGEST_SALT} printable characters", "salt")
    _check_count(spec.matches, MOST_MATCHES, "matches")
    _check_count(spec.mirrors, MOST_MIRRORS, "mirrors")
    return replace(
        spec,
        unit=check_unit(spec.unit),
        matches=tuple(_match(one, names) for one in spec.matches),
        mirrors=tuple(_mirror(one, names) for one in spec.mirrors),
    )


def check_unit(unit: str) -> str:
    """In its usual form. Raises Invalid."""
    source, colon, name = unit.partition(":")
    if unit in ("", KEY, SEQUENCE):
        return unit
    if source == HEADER and _HEADER.fullmatch(name.lower()):
        return f"{HEADER}:{name.lower()}"
    if source == PARAMETER and colon and 0 < len(name) <= LONGEST_VALUE and name.isprintable():
        return unit
    raise Invalid(
        f"the unit '{unit:.100}' is none; give 'header:NAME', 'parameter:NAME', 'key' (whose token "
        "it is), 'sequence', or nothing to draw anew for each request",
        "unit",
    )


def buckets_of(percent: float, what: str, field: str) -> int:
    """A share in percent as buckets. Raises Invalid naming `what`."""
    buckets = round(percent * _PER_PERCENT) if 0 <= percent <= 100 else -1
    if buckets < 0 or abs(buckets / _PER_PERCENT - percent) > 1e-9:
        raise Invalid(
            f"{what} is {percent:g} %; it must be 0 to 100 with at most two decimals", field
        )
    return buckets


def percent_of(buckets: int) -> float:
    return buckets / _PER_PERCENT


class ArmRow(Struct, frozen=True, forbid_unknown_fields=True):
    """An arm in a request; `weight` in percent. A text of null is none."""

    name: str | None = None
    model: str | None = None
    version: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None
    alias: str | None = None
    weight: float = 0

    def arm(self) -> DesiredArm:
        """Raises Invalid."""
        weight = buckets_of(self.weight, f"the weight of the arm '{self.name or '':.80}'", "arms")
        return DesiredArm(
            self.name or "", self.model or "", self.version or 0, self.alias or "", weight
        )


class RuleRow(Struct, frozen=True, forbid_unknown_fields=True):
    """A rule in a request."""

    header: str | None = None
    value: str | None = None
    prefix: bool = False
    arm: str | None = None

    def rule(self) -> Match:
        return Match(self.header or "", self.value or "", self.arm or "", self.prefix)


class MirrorRow(Struct, frozen=True, forbid_unknown_fields=True):
    """A mirror in a request."""

    arm: str | None = None
    percent: float = 0

    def mirror(self) -> Mirror:
        """Raises Invalid."""
        arm = self.arm or ""
        return Mirror(arm, buckets_of(self.percent, _share_of(arm), "mirrors"))


class RouteRows(Struct, frozen=True):
    """A route in a request."""

    arms: list[ArmRow] | None = None
    unit: str | None = None
    salt: str | None = None
    matches: list[RuleRow] | None = None
    mirrors: list[MirrorRow] | None = None


def parse_spec(document: Mapping[str, Any]) -> RouteSpec:
    """From the JSON that `spec_json` writes. Raises Invalid naming the field and what is wrong."""
    try:
        rows = msgspec.convert(document, RouteRows)
    except msgspec.ValidationError as error:
        raise _refused(document, fault_in(document, error)) from None
    return checked(
        RouteSpec(
            arms=tuple(one.arm() for one in rows.arms or ()),
            unit=rows.unit or "",
            salt=rows.salt or "",
            matches=tuple(one.rule() for one in rows.matches or ()),
            mirrors=tuple(one.mirror() for one in rows.mirrors or ()),
        )
    )


def spec_parts(spec: RouteSpec) -> dict[str, Any]:
    """As a route is answered: its arms, unit, salt, rules and mirrors."""
    return {
        "arms": tuple(
            ArmOfRoute(
                arm.name, arm.model, arm.version or None, arm.alias or None, percent_of(arm.weight)
            )
            for arm in spec.arms
        ),
        "unit": spec.unit,
        "salt": spec.salt,
        "matches": tuple(
            RuleOfRoute(one.header, one.value, one.prefix, one.arm) for one in spec.matches
        ),
        "mirrors": tuple(MirrorOfRoute(one.arm, percent_of(one.weight)) for one in spec.mirrors),
    }


def spec_json(spec: RouteSpec) -> dict[str, Any]:
    """What `parse_spec` reads."""
    found: dict[str, Any] = stored_json(spec_parts(spec))
    return found


def _check_arms(arms: Sequence[DesiredArm]) -> None:
    if not 1 <= len(arms) <= MOST_ARMS:
        raise Invalid(f"a route has 1 to {MOST_ARMS} arms, not {len(arms)}", "arms")
    names: set[str] = set()
    for arm in arms:
        if not _ARM.fullmatch(arm.name):
            raise Invalid(
                f"'{arm.name:.80}' cannot name an arm: use 1 to 63 of a-z, 0-9, '_' and '-', with "
                "a letter first",
                "arms",
            )
        if arm.name in names:
            raise Invalid(f"there are two arms '{arm.name}'", "arms")
        names.add(arm.name)
        if bool(arm.version) == bool(arm.alias):
            raise Invalid(
                f"the arm '{arm.name}' must name either a version or an alias of '{arm.model:.80}'",
                "arms",
            )
    total = sum(arm.weight for arm in arms)
    if total != BUCKETS or any(arm.weight < 0 for arm in arms):
        shown = ", ".join(f"{arm.name} {percent_of(arm.weight):g}" for arm in arms)
        raise Invalid(
            f"the weights add up to {percent_of(total):g} % instead of 100 %: {shown}", "arms"
        )


def _check_count(items: Sequence[object], most: int, field: str) -> None:
    if len(items) > most:
        raise Invalid(f"a route has at most {most} {field}, not {len(items)}", field)


def _match(one: Match, arms: Sequence[str]) -> Match:
    header = one.header.lower()
    if not _HEADER.fullmatch(header):
        raise Invalid(f"'{one.header:.80}' is no header's name", "matches")
    if not 0 < len(one.value) <= LONGEST_VALUE or not one.value.isprintable():
        raise Invalid(
            f"the rule on the header '{header}' needs a value of 1 to {LONGEST_VALUE} printable "
            "characters",
            "matches",
        )
    _check_arm(one.arm, arms, f"the rule on the header '{header}'", "matches")
    return replace(one, header=header)


def _mirror(one: Mirror, arms: Sequence[str]) -> Mirror:
    _check_arm(one.arm, arms, "a mirror", "mirrors")
    if not 0 < one.weight <= BUCKETS:
        share = percent_of(one.weight)
        raise Invalid(
            f"the mirror to '{one.arm}' gets {share:g} % of the requests; more than 0, at most 100",
            "mirrors",
        )
    return one


def _check_arm(arm: str, arms: Sequence[str], who: str, field: str) -> None:
    if arm not in arms:
        raise Invalid(f"{who} leads to '{arm:.80}'; the arms are {', '.join(arms)}", field)


_ROWS: Mapping[str, type[Struct]] = {"arms": ArmRow, "matches": RuleRow, "mirrors": MirrorRow}


def _refused(document: Mapping[str, Any], fault: Fault) -> Invalid:
    """A document that is no route, by the row that is at fault."""
    field, *inside = map(str, fault.path)
    shown = f"{fault.value!s:.40}"
    if field not in _ROWS:
        return Invalid(f"{field} of the route is {shown}; it must be a string", field)
    row = document[field][int(inside[0])] if inside else None
    if not isinstance(row, Mapping):
        return Invalid(f"{field} must be a list of objects", field)
    who = _name_of(field, row)
    if fault.unknown or len(inside) < 2:  # a key may be empty
        fields = ", ".join(_ROWS[field].__struct_fields__)
        return Invalid(f"{who} has no '{fault.unknown:.80}'; there are {fields}", field)
    name = inside[1]
    match name:
        case "version":
            return Invalid(f"{who} names the version {shown}, which is no version", field)
        case "prefix":
            return Invalid(f"prefix of a rule is {shown}; it must be true or false", field)
        case "weight":
            what = f"the weight of {who}"
        case "percent":
            what = _share_of(row.get("arm") or "")
        case _:
            return Invalid(f"{name} of {who} is {shown}; it must be a string", name)
    return Invalid(f"{what} is {shown}; it must be a number of percent", field)


def _name_of(field: str, row: Mapping[str, Any]) -> str:
    if field != "arms":
        return "a rule" if field == "matches" else "a mirror"
    name = row.get("name") or ""
    return f"the arm '{name:.80}'" if isinstance(name, str) else "an arm"


def _share_of(arm: object) -> str:
    return f"the share of the mirror to '{arm!s:.80}'"
