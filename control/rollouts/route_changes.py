"""What a person does to a route that a rollout or an experiment needs as it is: refused, naming who
needs it and what to do, or these are ended by the same change."""

from collections.abc import Mapping

from sqlalchemy.orm import Session

from control.errors import Conflict
from control.experiments import service as experiments
from control.rollouts import queries
from control.rollouts import service as rollouts
from control.rollouts.route_weights import STABLE, RolloutRoutes
from control.rollouts.state import ENDS
from control.routes import service as routes
from control.routes.service import RouteView
from control.routes.spec import RouteSpec
from control.sql.database import Transaction, expect_revision


def set_route(
    tx: Transaction, name: str, spec: RouteSpec, expected: int | None = None, *, force: bool = False
) -> RouteView:
    """`control.routes.service.set_route`; `force` ends what needs the arms, the weights, the unit
    or the salt as they are. Raises what that raises, and Conflict without `force`."""
    tx.alone()
    before = routes.find_route(tx.session, name)
    if before is None or not _reshuffles(before.spec, spec):
        return routes.set_route(tx, name, spec, expected)
    expect_revision(before.revision, expected, f"the route '{name}'")
    _free(tx, before, force)
    return routes.set_route(tx, name, spec)


def set_weights(
    tx: Transaction,
    name: str,
    weights: Mapping[str, int],
    expected: int | None = None,
    *,
    force: bool = False,
) -> RouteView:
    """`control.routes.service.set_weights`, as above. A rollout that is ended leaves the stable
    arm alone, so that there is no other one then whose weight could be set."""
    tx.alone()
    before = routes.get_route(tx.session, name)
    expect_revision(before.revision, expected, f"the route '{name}'")
    there = {arm.name: arm.weight for arm in before.spec.arms}
    if any(there.get(arm) != weight for arm, weight in weights.items()):
        _free(tx, before, force)
    return routes.set_weights(tx, name, weights)


def delete_route(
    tx: Transaction, name: str, expected: int | None = None, *, force: bool = False
) -> RouteView:
    """`control.routes.service.delete_route`, as above; a draft of an experiment keeps none."""
    tx.alone()
    before = routes.get_route(tx.session, name)
    expect_revision(before.revision, expected, f"the route '{name}'")
    _free(tx, before, force)
    return routes.delete_route(tx, name)


def kill(tx: Transaction, name: str, arm: str = "", expected: int | None = None) -> RouteView:
    """`control.routes.service.kill`; a rollout under way is taken back by it. An experiment goes
    on: what the kill switch sends takes no part in it.

    Raises Conflict for another arm than the stable one while a rollout is under way.
    """
    tx.alone()
    before = routes.get_route(tx.session, name)
    expect_revision(before.revision, expected, f"the route '{name}'")
    rollout, stable = _rollout(tx.session, before), before.spec.arms[0].name
    if rollout and stable == STABLE:
        if arm not in ("", stable):
            raise Conflict(
                f"the rollout {rollout} moves the arms of the route '{name}', and the kill switch "
                f"can only end it: leave out the arm, or let the rollout go all the way "
                f"(modelyard rollout promote-full {name})"
            )
        why = f"{tx.actor.principal} turned on the kill switch"
        rollouts.call_off(tx, RolloutRoutes(), rollout, why)
    return routes.kill(tx, name, arm)


def running_on(session: Session, name: str) -> list[str]:
    """Names of the running experiments that compare arms of the route."""
    return [one.name for one in experiments.running(session) if one.route == name]


def _reshuffles(before: RouteSpec, after: RouteSpec) -> bool:
    """Whether a unit may meet another arm, or its arm another version. Rules send what takes no
    part in anything."""
    salt = after.salt or before.salt
    return (before.arms, before.mirrors, before.unit, before.salt) != (
        after.arms,
        after.mirrors,
        after.unit,
        salt,
    )


def _free(tx: Transaction, route: RouteView, force: bool) -> None:
    """Nobody needs it as it is afterwards. Raises Conflict."""
    rollout, names = _rollout(tx.session, route), running_on(tx.session, route.name)
    if not force:
        _check_free(route, rollout, names)
    if rollout:
        why = f"{tx.actor.principal} changed the route"
        rollouts.call_off(tx, RolloutRoutes(), rollout, why)
    for name in running_on(tx.session, route.name):
        experiments.stop_experiment(tx, name)


def _check_free(route: RouteView, rollout: str, names: list[str]) -> None:
    if rollout:
        raise Conflict(
            f"the rollout {rollout} moves the arms of the route '{route.name}'; abort it first "
            f"(modelyard rollout abort {route.name}), or force the change, which aborts it"
        )
    if names:
        raise Conflict(
            f"the experiment '{names[0]}' compares the arms of the route '{route.name}'; stop it "
            f"first (modelyard experiment stop {names[0]}), or force the change, which stops it"
        )


def _rollout(session: Session, route: RouteView) -> str:
    """The one under way that moves the route, "" for none."""
    if not route.rollout or queries.get_rollout(session, route.rollout).phase in ENDS:
        return ""
    return route.rollout
