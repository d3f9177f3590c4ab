"""Experiments as front ends need them: which requests take part, and the stamp of their answers.

Compiled once for each change of the desired state. Pure.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from control import desired
from control.experiments.namespaces import takes_part
from control.experiments.stamp import ArmIdentity as Stamped
from control.experiments.stamp import Stamper, unit_key
from server.routing.table import CompiledRoute, RouteTable, Target, UnitExposure

STAMP_NAME = "x-modelyard-stamp"
"""In which a response brings the stamp that feedback may send back, over both protocols."""


@dataclass(frozen=True, slots=True)
class RouteExperiment:
    """One experiment on a route; `stampers` by arm. `held`: its buckets of the namespace."""

    id: str
    namespace: str
    held: range
    stampers: Mapping[str, Stamper]


Trials = Mapping[str, tuple[RouteExperiment, ...]]
"""By the route's public name."""


def compile_trials(
    experiments: Iterable[desired.DesiredExperiment], table: RouteTable, key: bytes
) -> Trials:
    """Those whose route there is; nothing without a `key` to sign with."""
    found: dict[str, tuple[RouteExperiment, ...]] = {}
    for one in experiments:
        route = table.get(one.route)
        if route is not None and key:
            found[one.route] = (*found.get(one.route, ()), _trial(one, route, key))
    return found


def stamped(trials: Iterable[RouteExperiment], target: Target, unit: str, now: float) -> Target:
    """`target` with the stamp for its answer, where the unit takes part. `now`: seconds since the
    epoch. At most one does: experiments that share a route share its units out."""
    for trial in trials:
        stamper = trial.stampers.get(target.arm)
        if stamper is not None and takes_part(trial.namespace, trial.held, unit):
            key = unit_key(unit)
            stamp = stamper.sign(key, now)
            line = b"%s%s: %s\r\n" % (target.line, STAMP_NAME.encode(), stamp.encode())
            exposure = UnitExposure(trial.id, key.hex(), target.arm)
            made = target.again()
            made.line, made.stamp, made.exposure = line, stamp, exposure
            return made
    return target


def _trial(one: desired.DesiredExperiment, route: CompiledRoute, key: bytes) -> RouteExperiment:
    held = range(one.first_bucket, one.first_bucket + one.buckets)
    stampers = {
        target.arm: Stamper(
            key, Stamped(route.name, target.arm, target.model, target.version, one.id)
        )
        for target in route.targets
        if target.arm in one.arms
    }
    return RouteExperiment(one.id, one.namespace, held, stampers)
