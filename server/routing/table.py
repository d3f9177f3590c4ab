"""Routes as front ends need them, compiled once for each change of the desired state. Pure."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple
from urllib.parse import quote

from control import desired
from control.routes.buckets import BUCKETS, bucket_after, prefix_of
from control.routes.spec import HEADER, PARAMETER, SEQUENCE
from server.routing.arm_counters import ArmCounters

HEADER_NAME = "x-modelyard-route"
"""In which a response names who answered, over both protocols."""

SEQUENCE_ID = "sequence_id"
"""The parameter that says which sequence a request belongs to."""

MOST_KNOWN, LONGEST_KNOWN = 4_096, 64
"""Units of a route whose target is remembered, and characters of the longest such unit. Less than
3 MB a route."""

Aliases = Mapping[str, Mapping[str, int]]
"""Model → alias → version."""

Key = tuple[str, str, str, str, int, bool]

WindowAt = Callable[[Key], ArmCounters]
"""Where the outcomes of an arm are counted."""


class UnitExposure(NamedTuple):
    """A unit, by its key in hex, meets an arm of the experiment with this id."""

    experiment: str
    unit: str
    arm: str


class ArmAssignment(NamedTuple):
    """A chance by which requests are shared out between two arms: the second one of a route that
    `rollout` moves owns `weight` of 10,000 buckets, and was met or not. Another salt is another
    chance."""

    rollout: str
    salt: str
    weight: int
    second: bool


@dataclass(slots=True, eq=False)
class Target:
    """Who is to answer; treated as frozen once its maker hands it on. A named tuple's fields take
    longer to read (9 ns for 2), and each request reads a dozen. `version` 0: its alias stands for
    nothing.

    `sticky`: the unit alone decided, so that it always meets this arm. `mirrors` get copies of the
    request; `copy` is set in these. `mirrored` are the same target with mirrors, for the requests
    that are to be copied. `label` is what the response says, `line` its line in an
    HTTP/1.1 head, `key` what its outcomes are counted under, and `window` where. Where the unit
    takes part in an experiment, `exposure` says so, and `stamp` is for the response as well; `line`
    has it. `assignment` is set where chance decided, and then `unit` says for whom, "" for this
    request alone.
    """

    route: str
    arm: str
    model: str
    version: int
    sticky: bool
    label: str
    line: bytes
    key: Key
    window: ArmCounters
    mirrors: tuple["Target", ...] = ()
    stamp: str = ""
    exposure: UnitExposure | None = None
    assignment: ArmAssignment | None = None
    unit: str = ""
    mirrored: tuple["MirroredTarget", ...] = ()

    def again(self) -> "Target":
        """The same once more, for its maker to change before anybody else sees it."""
        return Target(
            self.route,
            self.arm,
            self.model,
            self.version,
            self.sticky,
            self.label,
            self.line,
            self.key,
            self.window,
            self.mirrors,
            self.stamp,
            self.exposure,
            self.assignment,
            self.unit,
            self.mirrored,
        )


class MirroredTarget(NamedTuple):
    """The `target` of so many of 10,000 requests, less those that one before it is for."""

    weight: int
    target: Target


class Rule(NamedTuple):
    """Requests whose header has the value, or begins with it, go to the arm of this number."""

    header: str
    value: str
    prefix: bool
    arm: int


class MirrorArm(NamedTuple):
    """So many of 10,000 requests go to `target` as well."""

    weight: int
    target: Target


class UnitTargetCache(dict[str, Target]):
    """Whose the units are that were met lately: `known[unit]` finds it for any unit, for one met
    again without a hash. They are forgotten together when they are too many."""

    __slots__ = ("_owners", "_prefix", "_targets")

    def __init__(self, salt: str, owners: bytes, targets: tuple[Target, ...]) -> None:
        super().__init__()
        self._prefix = prefix_of(salt)
        self._owners = owners
        self._targets = targets

    def __missing__(self, unit: str) -> Target:
        target = self._targets[self._owners[bucket_after(self._prefix, unit)]]
        if target.assignment is not None:
            target = _for_unit(target, unit)
        if len(unit) <= LONGEST_KNOWN:
            if len(self) >= MOST_KNOWN:
                self.clear()
            self[unit] = target
        return target


def _for_unit(target: Target, unit: str) -> Target:
    made = target.again()
    made.unit = unit
    if made.mirrored:
        made.mirrored = tuple(MirroredTarget(n, _for_unit(one, unit)) for n, one in made.mirrored)
    return made


@dataclass(frozen=True, slots=True)
class CompiledRoute:
    """One public name. `owners`: the number of the arm that owns each bucket. `targets` are the
    arms where a unit decided, `drawn` the same ones where a draw did, `loose` where a rule did.

    `known` says whose a unit is, and remembers it for as long as the table is in force.
    `unit_source` and `unit_name` as in `control.routes.spec`; `headers` are all that must be known
    of a request, in lower case, `unit_header` is the unit's where no other is asked for, else
    empty, `parameter` is the one that is the unit, "" for none. `asks`: whether anything must be
    known of a request. `decides`: whether the unit, or a draw where there is none, decides alone,
    not a rule, the switch or the draw for a mirror. `only`: who gets everything, None for the
    usual.
    """

    name: str
    salt: str
    unit_source: str
    unit_name: str
    headers: frozenset[bytes]
    unit_header: bytes
    parameter: str
    asks: bool
    decides: bool
    owners: bytes
    targets: tuple[Target, ...]
    drawn: tuple[Target, ...]
    loose: tuple[Target, ...]
    known: UnitTargetCache = field(compare=False, repr=False)
    rules: tuple[Rule, ...] = ()
    copied: tuple[MirrorArm, ...] = ()
    only: Target | None = None


RouteTable = Mapping[str, CompiledRoute]
"""By public name; swapped whole."""


def _apart(_key: Key) -> ArmCounters:
    """For a table that is only asked who would answer."""
    return ArmCounters()


def compile_table(
    routes: Iterable[desired.DesiredRoute], aliases: Aliases, window_at: WindowAt = _apart
) -> RouteTable:
    """A route without arms is left out: no later build may make us answer for nobody."""
    return {one.name: compile_route(one, aliases, window_at) for one in routes if one.arms}


def compile_route(
    route: desired.DesiredRoute, aliases: Aliases, window_at: WindowAt = _apart
) -> CompiledRoute:
    source, _, name = route.unit.partition(":")
    numbers = {arm.name: number for number, arm in enumerate(route.arms)}
    rules = tuple(
        Rule(one.header, one.value, one.prefix, numbers[one.arm])
        for one in route.matches
        if one.arm in numbers
    )
    unit_header = name.encode() if source == HEADER else b""
    headers = {rule.header.encode() for rule in rules} | ({unit_header} if unit_header else set())

    def made(arm: desired.DesiredArm, copy: bool = False) -> Target:
        return _target(route, arm, aliases, window_at, copy)

    copied = tuple(
        MirrorArm(one.weight, made(route.arms[numbers[one.arm]], copy=True))
        for one in route.mirrors
        if one.arm in numbers
    )
    loose = tuple(_mirrored(made(arm), copied) for arm in route.arms)
    drawn = tuple(_also(one, assignment=_lot(route, number)) for number, one in enumerate(loose))
    targets = tuple(_also(one, sticky=True) for one in drawn)
    owners = _owners([arm.weight for arm in route.arms])
    known = UnitTargetCache(route.salt, owners, targets)
    only = made(route.arms[numbers[route.only]]) if route.only in numbers else None
    decides = not rules and only is None and not any(one.mirrored for one in targets)
    return CompiledRoute(
        name=route.name,
        salt=route.salt,
        unit_source=source,
        unit_name=name,
        headers=frozenset(headers),
        unit_header=b"" if rules else unit_header,
        parameter={PARAMETER: name, SEQUENCE: SEQUENCE_ID}.get(source, ""),
        asks=bool(source or rules),
        decides=decides,
        owners=owners,
        targets=targets,
        drawn=drawn,
        loose=loose,
        known=known,
        rules=rules,
        copied=copied,
        only=only,
    )


def targets_of(table: RouteTable) -> list[Target]:
    """Everybody who can be asked for an answer or a copy of one."""
    return [
        target
        for route in table.values()
        for target in (*route.loose, *(one.target for one in route.copied))
    ]


def _mirrored(target: Target, copied: tuple[MirrorArm, ...]) -> Target:
    """Nobody gets a copy of what it answers itself. Where every mirror gets a copy of everything
    there is nothing to draw."""
    others = [one for one in copied if one.target.arm != target.arm and one.weight]
    if others and all(one.weight >= BUCKETS for one in others):
        return replace(target, mirrors=tuple(one.target for one in others))
    made = []
    for weight in sorted({one.weight for one in others}):
        mirrors = tuple(one.target for one in others if one.weight >= weight)
        made.append(MirroredTarget(weight, replace(target, mirrors=mirrors)))
    return replace(target, mirrored=tuple(made))


def _also(target: Target, **terms: Any) -> Target:
    """`target` with these terms, whether it is copied or not."""
    mirrored = tuple(MirroredTarget(n, replace(one, **terms)) for n, one in target.mirrored)
    return replace(target, mirrored=mirrored, **terms)


def _lot(route: desired.DesiredRoute, arm: int) -> ArmAssignment | None:
    """None where nobody asks for it, or nothing is left to chance."""
    if not route.rollout or len(route.arms) != 2 or not 0 < route.arms[1].weight < BUCKETS:
        return None
    return ArmAssignment(route.rollout, route.salt, route.arms[1].weight, second=arm == 1)


def _owners(weights: list[int]) -> bytes:
    """The first arm owns what is left above the others, which begin at bucket 0 in their order:
    a weight that grows at the cost of the first arm never moves a unit back to it."""
    owners = bytearray(BUCKETS)
    start = 0
    for number, weight in enumerate(weights[1:], 1):
        owners[start : start + weight] = bytes((number,)) * weight
        start += weight
    return bytes(owners[:BUCKETS])


def _target(
    route: desired.DesiredRoute,
    arm: desired.DesiredArm,
    aliases: Aliases,
    window_at: WindowAt,
    copy: bool,
) -> Target:
    version = arm.version or aliases.get(arm.model, {}).get(arm.alias, 0)
    label = f"{quote(arm.model, safe='')}@{version};{arm.name}"
    if route.rollout:
        label += f";rollout={route.rollout}"
    key = (route.name, route.rollout, arm.name, arm.model, version, copy)
    return Target(
        route=route.name,
        arm=arm.name,
        model=arm.model,
        version=version,
        sticky=False,
        label=label,
        line=f"{HEADER_NAME}: {label}\r\n".encode("ascii"),
        key=key,
        window=window_at(key),
    )
