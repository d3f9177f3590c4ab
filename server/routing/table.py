"""Routes as the doors need them, compiled once for each change of what is wanted. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import quote

from control import desired
from control.route_spec import HEADER, PARAMETER, SEQUENCE
from control.routing_buckets import BUCKETS, prefix_of

HEADER_NAME = "x-modelyard-route"
"""In which a response names who answered, over both protocols."""

SEQUENCE_ID = "sequence_id"
"""The parameter that says which sequence a request belongs to."""

Aliases = Mapping[str, Mapping[str, int]]
"""Model → alias → version."""

Key = tuple[str, str, str, str, int, bool]


class Exposure(NamedTuple):
    """A unit, by its key in hex, meets an arm of the experiment with this id."""

    experiment: str
    unit: str
    arm: str


class Lot(NamedTuple):
    """A chance by which requests are shared out between two arms: the second one of a route that
    `rollout` moves owns `weight` of 10,000 buckets, and was met or not. Another salt is another
    chance."""

    rollout: str
    salt: str
    weight: int
    second: bool


class Target(NamedTuple):
    """Who is to answer. `version` 0: its alias stands for nothing.

    `sticky`: the unit alone decided, so that it always meets this arm. `mirrors` get copies of the
    request; `copy` is set in these. `label` is what the response says, `line` its line in an
    HTTP/1.1 head, `key` what its outcomes are counted under. Where the unit takes part in an
    experiment, `exposure` says so, and `stamp` is for the response as well; `line` has it. `lot` is
    set where chance decided, and then `unit` says for whom, "" for this request alone.
    """

    route: str
    arm: str
    model: str
    version: int
    sticky: bool
    label: str
    line: bytes
    key: Key
    mirrors: tuple["Target", ...] = ()
    stamp: str = ""
    exposure: Exposure | None = None
    lot: Lot | None = None
    unit: str = ""


_MIRRORS, _UNIT = Target._fields.index("mirrors"), Target._fields.index("unit")


def with_mirrors(target: Target, mirrors: tuple[Target, ...]) -> Target:
    """For a single request: `_replace` takes five times as long."""
    return Target._make((*target[:_MIRRORS], mirrors, *target[_MIRRORS + 1 :]))


def for_unit(target: Target, unit: str) -> Target:
    """As above."""
    return Target._make((*target[:_UNIT], unit))


class Rule(NamedTuple):
    """Requests whose header has the value, or begins with it, go to the arm of this number."""

    header: str
    value: str
    prefix: bool
    arm: int


class Copied(NamedTuple):
    """So many of 10,000 requests go to `target` as well."""

    weight: int
    target: Target


@dataclass(frozen=True, slots=True)
class Route:
    """One public name. `owners`: the number of the arm that owns each bucket. `targets` are the
    arms where a unit decided, `drawn` the same ones where a draw did, `loose` where a rule did.

    `prefix`: what units are hashed behind. `unit_source` and `unit_name` as in
    `control.route_spec`; `headers` are all that must be known of a request, in lower case,
    `parameter` is the one that is the unit, "" for none. `only`: who gets everything, None for the
    usual.
    """

    name: str
    salt: str
    prefix: bytes
    unit_source: str
    unit_name: str
    headers: frozenset[bytes]
    parameter: str
    owners: bytes
    targets: tuple[Target, ...]
    drawn: tuple[Target, ...]
    loose: tuple[Target, ...]
    rules: tuple[Rule, ...] = ()
    copied: tuple[Copied, ...] = ()
    only: Target | None = None


RouteTable = Mapping[str, Route]
"""By public name; swapped whole."""


def compile_table(routes: Iterable[desired.Route], aliases: Aliases) -> RouteTable:
    """A route without arms is left out: no later build may make us answer for nobody."""
    return {one.name: compile_route(one, aliases) for one in routes if one.arms}


def compile_route(route: desired.Route, aliases: Aliases) -> Route:
    source, _, name = route.unit.partition(":")
    numbers = {arm.name: number for number, arm in enumerate(route.arms)}
    rules = tuple(
        Rule(one.header, one.value, one.prefix, numbers[one.arm])
        for one in route.matches
        if one.arm in numbers
    )
    headers = {rule.header for rule in rules} | ({name} if source == HEADER else set())
    loose = tuple(_target(route, arm, aliases) for arm in route.arms)
    drawn = tuple(one._replace(lot=_lot(route, number)) for number, one in enumerate(loose))
    return Route(
        name=route.name,
        salt=route.salt,
        prefix=prefix_of(route.salt),
        unit_source=source,
        unit_name=name,
        headers=frozenset(header.encode() for header in headers),
        parameter={PARAMETER: name, SEQUENCE: SEQUENCE_ID}.get(source, ""),
        owners=_owners([arm.weight for arm in route.arms]),
        targets=tuple(one._replace(sticky=True) for one in drawn),
        drawn=drawn,
        loose=loose,
        rules=rules,
        copied=tuple(
            Copied(one.weight, _target(route, route.arms[numbers[one.arm]], aliases, copy=True))
            for one in route.mirrors
            if one.arm in numbers
        ),
        only=loose[numbers[route.only]] if route.only in numbers else None,
    )


def targets_of(table: RouteTable) -> list[Target]:
    """Everybody who can be asked for an answer or a copy of one."""
    return [
        target
        for route in table.values()
        for target in (*route.loose, *(one.target for one in route.copied))
    ]


def _lot(route: desired.Route, arm: int) -> Lot | None:
    """None where nobody asks for it, or nothing is left to chance."""
    if not route.rollout or len(route.arms) != 2 or not 0 < route.arms[1].weight < BUCKETS:
        return None
    return Lot(route.rollout, route.salt, route.arms[1].weight, second=arm == 1)


def _owners(weights: list[int]) -> bytes:
    """The first arm owns what is left above the others, which begin at bucket 0 in their order:
    a weight that grows at the cost of the first arm never moves a unit back to it."""
    owners = bytearray(BUCKETS)
    start = 0
    for number, weight in enumerate(weights[1:], 1):
        owners[start : start + weight] = bytes((number,)) * weight
        start += weight
    return bytes(owners[:BUCKETS])


def _target(route: desired.Route, arm: desired.Arm, aliases: Aliases, copy: bool = False) -> Target:
    version = arm.version or aliases.get(arm.model, {}).get(arm.alias, 0)
    label = f"{quote(arm.model, safe='')}@{version};{arm.name}"
    if route.rollout:
        label += f";rollout={route.rollout}"
    return Target(
        route=route.name,
        arm=arm.name,
        model=arm.model,
        version=version,
        sticky=False,
        label=label,
        line=f"{HEADER_NAME}: {label}\r\n".encode("ascii"),
        key=(route.name, route.rollout, arm.name, arm.model, version, copy),
    )
