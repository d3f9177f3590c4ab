"""Back to an earlier version of a name: which ones there are, and the way.

A rollback is a rollout to the earlier version: it is loaded if it is not, then all traffic goes to
it, at once or by the steps of a plan. If it cannot be loaded, everything stays as it was.
"""

import msgspec
from sqlalchemy import select
from sqlalchemy.orm import Session

from control import loads
from control.clock import Moment
from control.errors import Conflict, Invalid, NotFound
from control.rollout_tables import Rollout
from control.rollouts import queries, service
from control.rollouts.facts import READY
from control.rollouts.history import RolledBackVersion, history_of, rolled_back
from control.rollouts.plan import Mode, RolloutPlan
from control.rollouts.route_weights import RolloutRoutes, why_not_moved
from control.rollouts.service import CandidateRequest
from control.rollouts.state import Phase
from control.rollouts.views import RolloutView, view_of
from control.routes import service as routes
from control.routes.service import RouteView
from control.sql.database import Transaction
from control.tables import Version

AT_ONCE = RolloutPlan(mode=Mode.IMMEDIATE)


class RollbackTarget(msgspec.Struct, frozen=True):
    """A version to go back to. `stable_until`: when it last stopped to be the stable version, None
    if it never was by a rollout; `ready`: on how many servers it is loaded."""

    version: int
    stable_until: Moment | None
    ready: int
    rolled_back: bool


class RollbackView(msgspec.Struct, frozen=True):
    """`serving`: the version that answers who names none, None where that is not known. `to`: the
    last healthy version before it, None where there is none. `under_way`: the rollout that a
    rollback ends, "" for none. `targets` and `rolled_back`: the highest version first. `blocked`:
    why the name's route cannot be rolled back, "" where it can."""

    model: str
    serving: int | None
    to: int | None
    under_way: str
    targets: tuple[RollbackTarget, ...]
    rolled_back: tuple[RolledBackVersion, ...]
    blocked: str = ""


def rollback_of(session: Session, model: str) -> RollbackView:
    """Where a rollback may lead. Raises NotFound for a model that is not known."""
    ready = _ready(session, model)
    if not ready:
        raise NotFound(f"there is no model '{model:.150}'")
    history = history_of(session, model)
    under_way = next((row for row in history if row.finished_at is None), None)
    route = routes.find_route(session, model)
    serving = _serving(route, under_way, ready)
    lost = {one.version: one for one in rolled_back(session, model)}
    until = _stable_until(history)
    found = tuple(
        RollbackTarget(version, until.get(version), ready[version], version in lost)
        for version in sorted(ready, reverse=True)
        if version != serving or under_way is not None
    )
    return RollbackView(
        model=model,
        serving=serving,
        to=serving if under_way is not None else _last_healthy(found, serving),
        under_way=under_way.id if under_way is not None else "",
        targets=found,
        rolled_back=tuple(sorted(lost.values(), key=lambda one: -one.version)),
        blocked="" if route is None else _why_not(route),
    )


def roll_back(
    tx: Transaction, model: str, to: int | None, plan: RolloutPlan = AT_ONCE, why: str = ""
) -> RolloutView:
    """To version `to`, or the last healthy one. A rollout under way is ended by it, and where its
    stable version is the one to go back to, that is all there is to do.

    Raises NotFound; Invalid for a version there is not; Conflict where there is none to go back to,
    it answers already, or the route is not of a form that a rollout may move.
    """
    tx.alone()
    found = rollback_of(tx.session, model)
    if found.blocked:
        raise Conflict(found.blocked)
    if found.under_way and (same := _under_way_to(tx.session, found.under_way, to)):
        return same
    version = _target(found, to)
    text = f"requested by {tx.actor.principal}" + (f": {why}" if why else "")
    ended = None
    if found.under_way:
        back = f"to version {version}, {text}"
        ended = service.call_off(tx, RolloutRoutes(), found.under_way, back)
    if ended is not None and version == found.serving:
        return ended
    if found.serving is None:
        raise Conflict(
            f"no version of '{model}' answers now, so there is none to roll back from; load "
            f"version {version} by an alias or a route"
        )
    wish = CandidateRequest(model, model, version, found.serving)
    return service.start(tx, RolloutRoutes(), wish, plan, rollback=text)


def _under_way_to(session: Session, rollout_id: str, to: int | None) -> RolloutView | None:
    """The rollback to `to`, or to any version, that is under way: whoever asks for the same again
    means that one."""
    row = queries.find(session, rollout_id)
    is_rollback = bool(row.state.get("rollback")) and row.phase != Phase.ABORTING
    return view_of(row) if is_rollback and to in (None, row.candidate) else None


def _ready(session: Session, model: str) -> dict[int, int]:
    """Each version there is, with on how many servers it is loaded."""
    numbers = select(Version.number).where(Version.model == model)
    found = dict.fromkeys(session.scalars(numbers), 0)
    for state in loads.states(session, [model]):
        if state.version:
            found[state.version] = found.get(state.version, 0) + (state.state == READY)
    return found


def _serving(
    route: RouteView | None, under_way: Rollout | None, ready: dict[int, int]
) -> int | None:
    """The stable version; without a route the highest that is loaded."""
    if under_way is not None:
        return under_way.stable
    if route is None:
        return max((version for version, servers in ready.items() if servers), default=None)
    return route.spec.arms[0].version or None


def _why_not(route: RouteView) -> str:
    """Why no rollback can move this route, "" where one can."""
    arm = route.spec.arms[0]
    if len(route.spec.arms) == 1 and arm.alias:
        return (
            f"the route '{route.name}' leads to the alias '{arm.alias}'; move that instead "
            f"(modelyard alias set {arm.model} {arm.alias} VERSION)"
        )
    return why_not_moved(route, route.name)


def _stable_until(history: list[Rollout]) -> dict[int, Moment]:
    until: dict[int, Moment] = {}
    for row in history:
        if row.phase == Phase.HEALTHY and row.stable is not None and row.finished_at is not None:
            until.setdefault(row.stable, row.finished_at)
    return until


def _last_healthy(targets: tuple[RollbackTarget, ...], serving: int | None) -> int | None:
    """What was stable last and not rolled back; else the version below the one that serves. Never a
    newer one that has not served: nobody knows whether it is healthy."""
    good = [one for one in targets if not one.rolled_back]
    before = [one for one in good if one.stable_until is not None]
    if before:
        return max(before, key=lambda one: (one.stable_until, one.version)).version
    below = (one.version for one in good if serving is not None and one.version < serving)
    return next(below, None)


def _target(found: RollbackView, to: int | None) -> int:
    there = [one.version for one in found.targets]
    version = found.to if to is None else to
    if version is None:
        others = f"; choose one of {', '.join(map(str, there))}" if there else ""
        raise Conflict(f"'{found.model}' has no healthy version before {found.serving}{others}")
    if version == found.serving and not found.under_way:
        raise Conflict(f"'{found.model}' is served by version {version} already")
    if version not in there:
        known = ", ".join(map(str, there)) or "no other"
        raise Invalid(f"'{found.model}' has no version {version}; it has {known}", "to")
    return version
