"""The beginning of a rollout of a name that has a route already."""

from sqlalchemy.orm import Session

from control.deployments.versions import get_model
from control.errors import Conflict, Invalid
from control.rollouts import queries, service
from control.rollouts.plan import RolloutPlan
from control.rollouts.route_changes import running_on
from control.rollouts.route_weights import RolloutRoutes
from control.rollouts.service import CandidateRequest
from control.rollouts.views import RolloutView
from control.routes.service import RouteView, find_route
from control.sql.database import Transaction


def roll_out(tx: Transaction, name: str, candidate: int, plan: RolloutPlan) -> RolloutView:
    """Version `candidate` of the model `name` is to take the traffic of its route over.

    Raises NotFound, Invalid for a version that does not exist, and Conflict where there is no
    route, where it has to stay as it is, or as `service.start` does.
    """
    model = get_model(tx.session, name)
    route = find_route(tx.session, name)
    if route is None:
        raise Conflict(
            f"'{name}' has no route; create one that keeps the current version in place "
            f"(modelyard route set {name} --arm stable={name}:VERSION=100), then roll out"
        )
    stable = _stable(tx.session, route)
    if candidate not in [one.version for one in model.versions]:
        versions = ", ".join(str(one.version) for one in model.versions)
        raise Invalid(f"'{name}' has no version {candidate}; it has {versions}", "candidate")
    wish = CandidateRequest(name, name, candidate, stable)
    return service.start(tx, RolloutRoutes(), wish, plan)


def _stable(session: Session, route: RouteView) -> int:
    """The version to keep in place. Raises Conflict where the route has to stay as it is."""
    arm = route.spec.arms[0]
    if not arm.version:
        raise Conflict(
            f"the arm '{arm.name}' of the route '{route.name}' leads to the alias '{arm.alias}', "
            f"which may move; give it a version first (modelyard route set {route.name} --arm "
            f"{arm.name}={arm.model}:VERSION=100)"
        )
    under_way = any(one.name == route.name for one in queries.active(session))
    if not under_way and (names := running_on(session, route.name)):
        raise Conflict(
            f"the experiment '{names[0]}' compares the arms of the route '{route.name}'; stop it "
            f"first (modelyard experiment stop {names[0]})"
        )
    return arm.version
