"""The routes and aliases in force on this server: the desired ones, as far as their targets are
ready here; until then the ones before them answer. Pure.

Readiness is asked for once, when a target is to get requests that it did not get before. What is in
force stays, whatever becomes of its targets, until something else is desired.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec.structs import replace

from control.desired import DesiredArm, DesiredModel, DesiredRoute, DesiredState, Pin
from server.routing.table import Aliases


class TargetState(NamedTuple):
    """One version on this server. `ready`: it answers; `coming`: it does not yet, or not at this
    moment, and nobody has to do anything about that; `text` goes behind "version 3"."""

    ready: bool
    coming: bool
    text: str


StateOf = Callable[[str, int], TargetState]
"""Of a model's version; of version 0 for whatever answers who names none."""


class PendingSubject(NamedTuple):
    """`subject` ("alias m@champion", "route chat") is not in force, because of
    `reason`. `failed`: and will not be without somebody's doing."""

    subject: str
    reason: str
    failed: bool = False


@dataclass(frozen=True, slots=True)
class EffectiveRoutes:
    """In force on this server. `pins`: model → versions that aliases and routes in force lead to,
    desired or not any more."""

    aliases: Aliases = field(default_factory=dict)
    routes: tuple[DesiredRoute, ...] = ()
    pins: Mapping[str, tuple[Pin, ...]] = field(default_factory=dict)
    pending: tuple[PendingSubject, ...] = ()


def effective(desired: DesiredState, before: EffectiveRoutes, state_of: StateOf) -> EffectiveRoutes:
    """What is in force now that this is desired and `before` was in force."""
    aliases, waiting = _aliases(desired.aliases, before.aliases, state_of)
    old = {route.name: route for route in before.routes}
    routes = []
    for route in desired.routes:
        found, pending = _route(route, old.get(route.name), _TargetResolver(aliases, state_of))
        waiting += pending
        if found is not None:
            routes.append(found)
    pins = _pins(aliases, routes, desired.models, before.pins)
    return EffectiveRoutes(aliases, tuple(routes), pins, tuple(waiting))


def of_desired(desired: DesiredState) -> EffectiveRoutes:
    """Everything in force as it is desired, ready or not: of a server that knows nothing else."""
    pins = _pins(desired.aliases, desired.routes, desired.models, {})
    return EffectiveRoutes(desired.aliases, desired.routes, pins)


def with_pins(desired: DesiredState, now: EffectiveRoutes) -> DesiredState:
    """`desired`, and what is still in force instead is kept loaded as well."""
    models = {model.name: model for model in desired.models}
    for name, pins in now.pins.items():
        model = models.get(name, DesiredModel(name))
        versions = {pin.version for pin in model.pins}
        more = tuple(pin for pin in pins if pin.version not in versions)
        if more:
            models[name] = replace(model, pins=model.pins + more)
    return replace(desired, models=tuple(models[name] for name in sorted(models)))


def experiments_in_force(desired: DesiredState, now: EffectiveRoutes) -> DesiredState:
    """`desired` with the routes in force, and with the experiments on those of them that are as
    they are desired: the arms of the others are not what they are called."""
    by_name = {route.name: route for route in desired.routes}
    settled = {route.name for route in now.routes if by_name.get(route.name) == route}
    moving = {one.subject for one in now.pending}
    return replace(
        desired,
        aliases=now.aliases,
        routes=now.routes,
        experiments=tuple(
            one
            for one in desired.experiments
            if one.route in settled and f"route {one.route}" not in moving
        ),
    )


def _aliases(
    desired: Aliases, before: Aliases, state_of: StateOf
) -> tuple[dict[str, dict[str, int]], list[PendingSubject]]:
    found: dict[str, dict[str, int]] = {}
    waiting = []
    for model, names in desired.items():
        for alias, number in names.items():
            old = before.get(model, {}).get(alias, 0)
            new, last = state_of(model, number), state_of(model, old)
            if old in (0, number) or new.ready or not (last.ready or last.coming):
                old = number
            else:
                waiting.append(_pending(f"alias {model}@{alias}", f"version {old}", number, new))
            found.setdefault(model, {})[alias] = old
    return found, waiting


class _TargetResolver(NamedTuple):
    """Whom arms lead to, by the aliases in force, and how these are."""

    aliases: Aliases
    state_of: StateOf

    def of(self, arm: DesiredArm) -> tuple[str, int]:
        return arm.model, arm.version or self.aliases.get(arm.model, {}).get(arm.alias, 0)

    def state(self, arm: DesiredArm) -> TargetState:
        model, version = self.of(arm)
        if version:
            return self.state_of(model, version)
        return TargetState(False, False, f"is not known: there is no alias '{arm.alias}'")


def _route(
    desired: DesiredRoute, before: DesiredRoute | None, targets: _TargetResolver
) -> tuple[DesiredRoute | None, list[PendingSubject]]:
    """The route in force and why it is not the desired one; None: the model of that name goes on
    answering.

    An arm that is not ready is answered for by what the arm of its name led to, if that is ready,
    and otherwise left out, so that nothing that was taken away waits for it. Where no arm that is
    to get requests is left, everything stays as before: so a kill switch is in force at once
    towards an arm that is ready, and towards another one as soon as that is.
    """
    needed = _needed(desired)
    arms, waiting = _ready_arms(desired, before, needed, targets)
    if not waiting:
        return desired, []
    if needed & {arm.name for arm in arms}:
        return replace(desired, arms=tuple(arms)), waiting
    if desired.only:
        waiting = [_unswitched(desired, targets)]
    if before is None and targets.state_of(desired.name, 0).ready:
        return None, waiting
    if before is not None and any(
        (state := targets.state(arm)).ready or state.coming
        for arm in before.arms
        if arm.name in _needed(before)
    ):
        return before, waiting
    return desired, []


def _needed(route: DesiredRoute) -> set[str]:
    """The arms that get requests."""
    if route.only:
        return {route.only}
    ruled = {one.arm for one in route.matches}
    return ruled | {arm.name for arm in route.arms if arm.weight}


def _ready_arms(
    desired: DesiredRoute, before: DesiredRoute | None, needed: set[str], targets: _TargetResolver
) -> tuple[list[DesiredArm], list[PendingSubject]]:
    """The arms that may be in force, and a reason for each that may not."""
    copied = set() if desired.only else {one.arm for one in desired.mirrors if one.weight}
    old = {arm.name: arm for arm in before.arms} if before is not None else {}
    answering = _needed(before) if before is not None else set()
    arms, idle, waiting = [], set(), []
    for arm in desired.arms:
        state, last = targets.state(arm), old.get(arm.name)
        same = last is not None and targets.of(last) == targets.of(arm)
        if state.ready or (same and arm.name in answering):
            arms.append(arm)
        elif arm.name not in needed | copied:
            arms.append(arm)
            idle.add(arm.name)
        else:
            stands_in = None if same or last is None or not targets.state(last).ready else last
            if stands_in is not None:
                arms.append(replace(stands_in, weight=arm.weight))
            waiting.append(_pending_arm(desired, arm, stands_in, targets))
    return [arm for arm in arms if not waiting or arm.name not in idle], waiting


def _pending_arm(
    route: DesiredRoute, arm: DesiredArm, stands_in: DesiredArm | None, targets: _TargetResolver
) -> PendingSubject:
    model, version = targets.of(arm)
    instead = f"arm '{arm.name}' without it"
    if stands_in is not None:
        old_model, old = targets.of(stands_in)
        instead = f"arm '{arm.name}' at '{old_model}' version {old}"
    state = targets.state(arm)
    return _pending(f"route {route.name}", instead, version, state, f"'{model}' ")


def _unswitched(route: DesiredRoute, targets: _TargetResolver) -> PendingSubject:
    """Why a kill switch is not in force: whom it is to take the requests from goes on getting
    them, which has to be said plainly."""
    arm = next(one for one in route.arms if one.name == route.only)
    (model, version), state = targets.of(arm), targets.state(arm)
    is_coming = state.coming or state.text == NOT_LOADED
    when = "not in force yet" if is_coming else "not in force"
    return PendingSubject(
        f"route {route.name}",
        f"the kill switch is {when}, what answered before keeps answering: its arm "
        f"'{arm.name}' cannot answer: '{model}' version {version} {state.text}",
        failed=not is_coming,
    )


def _pending(
    subject: str, instead: str, number: int, state: TargetState, model: str = ""
) -> PendingSubject:
    new = f"{model}version {number} {state.text}"
    if state.coming or state.text == NOT_LOADED:
        return PendingSubject(subject, f"not in force yet, kept at {instead}: {new}")
    return PendingSubject(subject, f"kept at {instead}: {new}", failed=True)


NOT_LOADED = "is not loaded yet"
"""The `text` of a version that nothing is known of."""


def _pins(
    aliases: Aliases,
    routes: Iterable[DesiredRoute],
    models: Iterable[DesiredModel],
    before: Mapping[str, tuple[Pin, ...]],
) -> dict[str, tuple[Pin, ...]]:
    """Those of the versions that are led to, each as it was pinned last."""
    earlier = {(model, pin.version): pin for model, pins in before.items() for pin in pins}
    earlier |= {(model.name, pin.version): pin for model in models for pin in model.pins}
    targets = _TargetResolver(aliases, lambda _, __: TargetState(False, False, ""))
    led = {(model, number) for model, names in aliases.items() for number in names.values()}
    led |= {targets.of(arm) for route in routes for arm in route.arms}
    found: dict[str, tuple[Pin, ...]] = {}
    for model, number in sorted(led & earlier.keys()):
        found[model] = (*found.get(model, ()), earlier[model, number])
    return found
