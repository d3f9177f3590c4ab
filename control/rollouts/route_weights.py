"""What a rollout asks of a name's traffic, made a route of: its RouteWriter."""

from msgspec.structs import replace
from sqlalchemy import select
from sqlalchemy.orm import Session

from control.desired import DesiredArm, Match, Mirror
from control.errors import Conflict
from control.experiments import service as experiments
from control.rollout_tables import Rollout
from control.rollouts.service import WeightRequest
from control.routes import service as routes
from control.routes.buckets import BUCKETS
from control.routes.spec import RouteSpec
from control.sql.database import Transaction

STABLE, CANDIDATE = "stable", "candidate"
"""The arms of a route that a rollout moves."""


class RolloutRoutes:
    """The routes, as rollouts change them: `control.rollouts.service.RouteWriter`."""

    def set_weights(self, tx: Transaction, name: str, weights: WeightRequest) -> None:
        """Create the route or change it; one that there was keeps its unit, and its rules for arms
        that are still there. An experiment that compares an arm which goes is stopped. Raises
        Conflict for a route with other arms, or while the kill switch would then lead elsewhere,
        or send nothing to a candidate that is new."""
        before = routes.find_route(tx.session, name)
        arms = _arms(weights)
        if before is not None:
            _check_arms(before, weights)
            _check_not_killed(before, arms)
            _stop_experiments(tx, before, arms)
        if not arms:
            routes.own(tx, name, None, "")
            return
        names = [arm.name for arm in arms]
        mirrors = (Mirror(CANDIDATE, weights.mirror),) if weights.mirror else ()
        spec = RouteSpec(
            arms=arms,
            unit=before.spec.unit if before else "",
            salt=weights.salt,
            matches=_kept(before.spec.matches if before else (), names),
            mirrors=mirrors if CANDIDATE in names else (),
        )
        owner = _rollout(tx.session, name, weights.salt) if CANDIDATE in names else ""
        routes.own(tx, name, spec, owner)


def _arms(weights: WeightRequest) -> tuple[DesiredArm, ...]:
    model, stable, candidate = weights.model, weights.stable, weights.candidate
    if stable is None and candidate is None:
        return ()
    if stable is None:
        return (DesiredArm(CANDIDATE, model, candidate or 0, "", BUCKETS),)
    if candidate is None:
        return (DesiredArm(STABLE, model, stable, "", BUCKETS),)
    return (
        DesiredArm(STABLE, model, stable, "", BUCKETS - weights.weight),
        DesiredArm(CANDIDATE, model, candidate, "", weights.weight),
    )


def _check_arms(route: routes.RouteView, weights: WeightRequest) -> None:
    if why := why_not_moved(route, weights.model):
        raise Conflict(why)


def why_not_moved(route: routes.RouteView, model: str) -> str:
    """Why a rollout of `model` cannot move this route, "" where it can. A route with one arm is
    taken over, whatever the arm is called."""
    arms = route.spec.arms
    ours = len(arms) == 1 or {arm.name for arm in arms} == {STABLE, CANDIDATE}
    if ours and all(arm.model == model for arm in arms):
        return ""
    return (
        f"the route '{route.name}' has the arms {', '.join(arm.name for arm in arms)}; a "
        f"rollout of '{model}' needs one with that model alone, and no arms but "
        f"'{STABLE}' and '{CANDIDATE}'"
    )


def _check_not_killed(route: routes.RouteView, arms: tuple[DesiredArm, ...]) -> None:
    if route.only and len(arms) > len(route.spec.arms):
        raise Conflict(
            f"the kill switch of '{route.name}' sends all to '{route.only}', so that a rollout "
            f"could not send anything elsewhere; release it first (modelyard route unkill "
            f"{route.name})"
        )


def _stop_experiments(
    tx: Transaction, route: routes.RouteView, arms: tuple[DesiredArm, ...]
) -> None:
    """Those that would go on counting for an arm that leads elsewhere, or gets nothing any more."""
    after = {arm.name: arm for arm in arms}
    gone = {arm.name for arm in route.spec.arms if _has_gone(arm, after.get(arm.name))}
    if not gone:
        return
    for one in experiments.running(tx.session):
        if one.route == route.name and gone & one.terms.shares.keys():
            experiments.stop_experiment(tx, one.name)


def _has_gone(before: DesiredArm, after: DesiredArm | None) -> bool:
    if after is None or replace(before, weight=0) != replace(after, weight=0):
        return True
    return before.weight > 0 and after.weight == 0


def _kept(matches: tuple[Match, ...], arms: list[str]) -> tuple[Match, ...]:
    return tuple(match for match in matches if match.arm in arms)


def _rollout(session: Session, name: str, salt: str) -> str:
    """The rollout's id: every rollout has a salt of its own."""
    found = select(Rollout.id).where(Rollout.name == name, Rollout.salt == salt)
    return session.scalars(found).one()
