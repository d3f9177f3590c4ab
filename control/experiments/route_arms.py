"""Experiments on the arms of real routes: what a route has, and what gateways are told of it."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy.orm import Session

from control.desired import DesiredExperiment
from control.errors import Conflict, Invalid, NotFound
from control.experiments.service import ExperimentView, running
from control.experiments.stamp import key_of
from control.routes.service import RouteView, get_route
from control.sql.store import SECRET
from control.tables import Meta


def placed(session: Session, route: str, terms: Mapping[str, Any]) -> dict[str, Any]:
    """The terms with the route's arms that get traffic, the stable one first, where none are named;
    where arms are, with what they lead to.

    Raises Invalid for an arm that the route has not, and where no route is.
    """
    found = _found(session, route)
    arms = terms.get("arms")
    if arms is None:
        return {**terms, "arms": _arms(found)}
    if isinstance(arms, Sequence) and not isinstance(arms, str):
        _check_arms(found, [row.get("name") for row in arms if isinstance(row, Mapping)])
        return {**terms, "arms": [_led(found, row) for row in arms]}
    return dict(terms)


def check_placed(session: Session, view: ExperimentView) -> None:
    """Whether the experiment can be started on its route as it is now. Raises Invalid, Conflict."""
    found = _found(session, view.route)
    _check_arms(found, list(view.terms.shares))
    there = {arm.name: (arm.model, arm.version) for arm in found.spec.arms}
    for arm in view.terms.arms:
        if arm.model and (arm.model, arm.version) != there[arm.name]:
            model, version = there[arm.name]
            raise Conflict(
                f"the experiment '{view.name}' was planned when the arm '{arm.name}' led to "
                f"{arm.model} version {arm.version}, and now it leads to {model} version "
                f"{version}; plan it again"
            )
    if not found.spec.unit:
        raise Conflict(
            f"the route '{view.route}' draws an arm anew for each request; give it a unit first, "
            f"e.g. modelyard route set {view.route} --unit header:x-user"
        )


def running_on_routes(session: Session) -> tuple[DesiredExperiment, ...]:
    """What gateways are to report exposures for, by name."""
    return tuple(
        DesiredExperiment(
            id=view.id,
            route=view.route,
            arms=tuple(view.terms.shares),
            namespace=view.terms.namespace,
            first_bucket=view.buckets.start,
            buckets=len(view.buckets),
        )
        for view in running(session)
    )


def stamp_key(session: Session) -> bytes:
    """With which the servers of this database sign stamps; empty before there is a secret."""
    row = session.get(Meta, SECRET)
    return key_of(bytes.fromhex(row.value)) if row is not None else b""


def _found(session: Session, route: str) -> RouteView:
    try:
        return get_route(session, route)
    except NotFound as error:
        raise Invalid(f"{error}; an experiment watches the arms of one", "route") from None


def _arms(route: RouteView) -> list[dict[str, Any]]:
    return [
        {"name": arm.name, "share": arm.weight, "model": arm.model, "version": arm.version}
        for arm in route.spec.arms
        if arm.weight
    ]


def _led(route: RouteView, row: Any) -> Any:
    """A person may leave out, but not make up, what an arm leads to."""
    if not isinstance(row, Mapping):
        return row  # whoever parses it says what it should be
    arm = next(one for one in route.spec.arms if one.name == row.get("name"))
    return {**row, "model": arm.model, "version": arm.version}


def _check_arms(route: RouteView, names: Sequence[object]) -> None:
    there = [arm.name for arm in route.spec.arms]
    for name in names:
        if name not in there:
            raise Invalid(
                f"the route '{route.name}' has no arm {name!r:.80}; it has {', '.join(there)}",
                "arms",
            )
