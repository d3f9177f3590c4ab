"""Everything a gateway knows of routes: the table in force, what it counts, and the copies.

Front ends ask `server.dataplane`, which asks here.
"""

import time
from collections.abc import Iterable, Mapping
from random import random
from types import MappingProxyType
from typing import Protocol

from control.access.scopes import Principal, id_of
from control.desired import DesiredState
from control.routes.buckets import BUCKETS
from control.routes.spec import HEADER, KEY
from schedulers.request import Sequence
from server.routing.arm_counters_registry import ArmCountersRegistry, Find, no_workers
from server.routing.assignment_counter import AssignmentCounter
from server.routing.experiments.exposures import ExposureBuffer
from server.routing.experiments.feedback import FeedbackBuffer
from server.routing.experiments.route_experiments import Trials, compile_trials, stamped
from server.routing.mirror import Mirrors, Send
from server.routing.pick import NO_LABELS, choose
from server.routing.sequences import Sequences
from server.routing.table import (
    Aliases,
    CompiledRoute,
    RouteTable,
    Target,
    compile_table,
    targets_of,
)


class RoutableRequest(Protocol):
    """What a route may ask of a request, whichever wire brought it."""

    principal: Principal | None

    def unit_in_header(self, route: CompiledRoute) -> str:
        """The unit in the one header of a route that has a `unit_header`, "" for none."""

    def labels(self, route: CompiledRoute) -> Mapping[str, str]:
        """Those of its headers that the route asks for."""

    def parameter(self, name: str) -> object:
        """One of its parameters, None where it has none of that name, or cannot be read."""

    def sequence(self) -> Sequence | None:
        """The sequence it belongs to; None where it has none, or cannot be read."""


class Routing:
    """One gateway's; on the loop's thread. `table` is swapped whole, as `aliases` and the
    experiments are."""

    def __init__(self, send: Send, find: Find = no_workers) -> None:
        """`find`: what runs a version now."""
        self.table: RouteTable = {}
        self.aliases: Aliases = {}
        self.windows = ArmCountersRegistry(find)
        self.assignments = AssignmentCounter()
        self.mirrors = Mirrors(send, self.windows)
        self.exposures = ExposureBuffer()
        self.feedback = FeedbackBuffer()
        self._trials: Trials = {}
        self._sequences = Sequences()

    def use(self, in_force: DesiredState) -> None:
        """Route by its aliases, routes and experiments from the next request on."""
        self.aliases = _frozen(in_force.aliases)
        self.table = compile_table(in_force.routes, self.aliases, self.windows.at)
        self._trials = compile_trials(in_force.experiments, self.table, in_force.stamp_key)
        self.feedback.use(in_force.stamp_key)
        targets = targets_of(self.table)
        self.windows.use(targets)
        self.assignments.use({target.key[1] for target in targets})
        self.mirrors.use(targets)

    def select(self, route: CompiledRoute, request: RoutableRequest) -> Target:
        """Select the arm that answers: by the request's unit or by a draw, but for the rest of a
        sequence, which goes where it began."""
        if route.unit_header:
            target = self.pick(route, request.unit_in_header(route))
        elif not route.asks:
            target = self.pick(route)
        else:
            labels, name = request.labels(route), route.parameter
            parameter = request.parameter(name) if name else None
            target = self.pick(route, unit_of(route, labels, request.principal, parameter), labels)
        if self._sequences.targets and (sequence := request.sequence()) is not None:
            return self._stay(target, sequence)
        return target

    def keep(self, target: Target, sequence: Sequence) -> Target | None:
        """Note that a request of the sequence goes to `target`: the rest of it will. The other arm
        on which it was until now, None where it was on none."""
        return self._sequences.keep(target, sequence, time.monotonic())

    def pick(
        self, route: CompiledRoute, unit: str = "", labels: Mapping[str, str] = NO_LABELS
    ) -> Target:
        """Who answers this request; asked twice, a request without a unit may get another."""
        if route.decides:
            if not unit:
                return route.drawn[route.owners[int(random() * BUCKETS)]]
            target = route.known[unit]
        else:
            target = choose(route, unit, labels, random())
        if self._trials and target.sticky and (trials := self._trials.get(route.name)):
            return stamped(trials, target, unit, time.time())
        return target

    def note_assignment(self, target: Target) -> None:
        """The request was accepted: its unit meets the arm, if `target` has a `assignment` or an
        `exposure`."""
        if target.assignment is not None:
            self.assignments.note(target.assignment, target.unit)
        if target.exposure is not None:
            self.exposures.note(target.exposure, time.time())

    def _stay(self, target: Target, sequence: Sequence) -> Target:
        """`target`, or where the sequence began."""
        stays = self._sequences.find(target, sequence, time.monotonic())
        if stays.key != target.key:
            stays = stays.again()
            stays.window = self.windows.of(stays)
        return stays


def _frozen(aliases: Aliases) -> Aliases:
    return MappingProxyType({name: MappingProxyType(dict(each)) for name, each in aliases.items()})


def unit_of(
    route: CompiledRoute,
    labels: Mapping[str, str],
    principal: Principal | None,
    parameter: object = None,
) -> str:
    """The request's unit, "" for none. `parameter`: the value of the route's one."""
    source = route.unit_source
    if source == HEADER:
        return labels.get(route.unit_name, "")
    if source == KEY:
        return id_of(principal)
    return text_of(parameter) if route.parameter else ""


def text_of(value: object) -> str:
    """A parameter as a unit: numbers and texts alike, whichever protocol brought them."""
    return str(value) if isinstance(value, str | int | float) and value != "" else ""


def labels_of(route: CompiledRoute, headers: Iterable[tuple[bytes, bytes]]) -> Mapping[str, str]:
    """Those of an HTTP request's headers (names in lower case) that the route asks for."""
    names = route.headers
    if not names:
        return NO_LABELS
    found: dict[str, str] = {}
    for name, value in headers:
        if name in names:
            found.setdefault(name.decode("latin-1"), _text(value))
    return found


def _text(value: bytes) -> str:
    return value.decode("utf-8", "surrogateescape")


def unit_header_of(route: CompiledRoute, headers: Iterable[tuple[bytes, bytes]]) -> str:
    """The unit alone, of a route that has a `unit_header`."""
    header = route.unit_header
    for name, value in headers:
        if name == header:
            return value.decode("utf-8", "surrogateescape")
    return ""


def labels_in(
    route: CompiledRoute, metadata: Iterable[tuple[str, str | bytes]]
) -> Mapping[str, str]:
    """The same of a gRPC call's metadata."""
    if not route.headers:
        return NO_LABELS
    found: dict[str, str] = {}
    for name, value in metadata:
        if name.encode() in route.headers and isinstance(value, str):
            found.setdefault(name, value)
    return found


def unit_header_in(route: CompiledRoute, metadata: Iterable[tuple[str, str | bytes]]) -> str:
    """The unit alone, of a route that has a `unit_header`."""
    header = route.unit_name
    for name, value in metadata:
        if name == header and isinstance(value, str):
            return value
    return ""
