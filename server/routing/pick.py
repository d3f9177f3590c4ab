"""Which arm answers a request: kill switch, then rules, then the unit's bucket or a draw. Pure."""

from collections.abc import Mapping
from typing import NamedTuple

from control.routes.buckets import BUCKETS
from server.routing.table import CompiledRoute, Target

NO_LABELS: Mapping[str, str] = {}


class RouteKey(NamedTuple):
    """What is known of a request. `unit`: whom it is for, "" if nobody said. `labels`: those of its
    headers that the route asks for, by name in lower case. `draw`: uniform in [0, 1)."""

    unit: str = ""
    labels: Mapping[str, str] = NO_LABELS
    draw: float = 0.0


def pick(route: CompiledRoute, key: RouteKey) -> Target:
    """Nothing is made for a single request, but what is remembered of its unit."""
    return choose(route, *key)


def choose(route: CompiledRoute, unit: str, labels: Mapping[str, str], draw: float) -> Target:
    """`pick` for each request: without the key, which takes longer to make than to use."""
    if route.only is not None:
        return route.only
    if route.rules and (number := _ruled(route, labels)) >= 0:
        target = route.loose[number]
    elif unit:
        target = route.known[unit]
    else:
        draw *= BUCKETS
        number = int(draw)
        target = route.drawn[route.owners[number]]
        draw -= number  # what is left says nothing of the arm
    for weight, mirrored in target.mirrored:
        if draw * BUCKETS < weight:
            return mirrored
    return target


def _ruled(route: CompiledRoute, labels: Mapping[str, str]) -> int:
    """The arm's number; -1 when no rule fits."""
    for rule in route.rules:
        value = labels.get(rule.header)
        if value is not None and (
            value.startswith(rule.value) if rule.prefix else value == rule.value
        ):
            return rule.arm
    return -1
