"""A deployment that changes who answers a model's name: taken over at once, or by a rollout."""

from dataclasses import dataclass

from control.rollouts import queries, service
from control.rollouts.commands import RolloutCommand
from control.rollouts.history import rolled_back
from control.rollouts.plan import Mode, RolloutPlan
from control.rollouts.route_changes import running_on
from control.rollouts.route_weights import CANDIDATE, STABLE
from control.rollouts.service import CandidateRequest, RouteWriter
from control.rollouts.views import RolloutView
from control.routes import service as routes
from control.sql.database import Transaction


@dataclass(frozen=True, slots=True)
class Promotion:
    """A model whose deployed snapshot has changed. `before` and `after`: the versions that answer
    who names none, None where none does. `plan`: what its config says, None for nothing."""

    model: str
    before: int | None
    after: int | None
    plan: RolloutPlan | None


def succeed(tx: Transaction, writer: RouteWriter, one: Promotion) -> RolloutView | None:
    """In the transaction that deploys the snapshot, so that the route which keeps the stable
    version in place is in force before the new one is loaded. None when no rollout is needed.

    A name whose route a person has split, killed, or watches with an experiment keeps it: the new
    version is loaded if the route, an alias or the version policy wants it, and gets traffic when
    the route says so. A version that was rolled back waits for a person, who retries its rollout.
    """
    route = routes.find_route(tx.session, one.model)
    if one.after is None or (route is not None and not _is_free(tx, route)):
        return None
    stable = _stable(route) if route is not None else one.before
    if stable is None:
        return None
    if stable == one.after:
        return _call_off(tx, writer, one.model)
    if one.after in [lost.version for lost in rolled_back(tx.session, one.model)]:
        return None  # a push that changes another version does not bring it back
    plan = one.plan or RolloutPlan(mode=Mode.IMMEDIATE)
    if route is None and plan.mode is Mode.IMMEDIATE:
        return None  # the highest selected version answers as soon as it is loaded
    wish = CandidateRequest(one.model, one.model, one.after, stable)
    return service.start(tx, writer, wish, plan)


def _is_free(tx: Transaction, route: routes.RouteView) -> bool:
    """Whether a rollout may move its arms; one that is under way may be superseded."""
    if not _is_ours(route):
        return False
    under_way = any(view.name == route.name for view in queries.active(tx.session))
    return under_way or not (route.only or running_on(tx.session, route.name))


def _call_off(tx: Transaction, writer: RouteWriter, name: str) -> RolloutView | None:
    """What is deployed now is what a rollout under way was to replace: end it."""
    for view in queries.active(tx.session):
        if view.name == name:
            return service.command(tx, writer, view.id, RolloutCommand.ABORT)
    return None


def _is_ours(route: routes.RouteView) -> bool:
    """Whether it is of the form that rollouts make, for the model of its own name."""
    arms = route.spec.arms
    names = {arm.name for arm in arms}
    return names <= {STABLE, CANDIDATE} and all(arm.model == route.name for arm in arms)


def _stable(route: routes.RouteView) -> int | None:
    return route.spec.arms[0].version or None
