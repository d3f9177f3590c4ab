"""Routes: public names with weighted arms, changed whole, one compare-and-set at a time."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from msgspec import convert
from msgspec.structs import asdict, replace
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from control import desired, paging
from control.clock import new_id
from control.deployments.aliases import check_version, get_alias
from control.deployments.deployment import check_model_name
from control.deployments.pending_changes import by_subject
from control.desired import DesiredArm, Match, Mirror
from control.errors import Conflict, Invalid, NotFound
from control.paging import SortOrder
from control.rollout_tables import ENDED_PHASES, Rollout
from control.routes.spec import RouteSpec, checked, spec_json, spec_parts
from control.sql.database import Transaction, expect_revision
from control.tables import Model, Route
from control.views import Page, PendingView, RouteDocument

MOST_ROUTES = 10_000

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RouteView:
    """One route. `only`: the arm that gets everything while the kill switch is on; `rollout`:
    the rollout that owns the weights; `revision` is for compare-and-set; `pending`: the servers on
    which it is not in force as it stands here."""

    name: str
    spec: RouteSpec
    only: str
    rollout: str
    updated_at: datetime
    updated_by: str
    revision: int
    pending: tuple[PendingView, ...] = ()

    def document(self) -> RouteDocument:
        return RouteDocument(
            name=self.name,
            **spec_parts(self.spec),
            only=self.only or None,
            rollout=self.rollout or None,
            updated_at=self.updated_at,
            updated_by=self.updated_by,
            revision=self.revision,
            pending=self.pending,
        )


def set_route(
    tx: Transaction, name: str, spec: RouteSpec, expected: int | None = None
) -> RouteView:
    """Make a route or change it whole; as it stands already changes nothing.

    `expected`: its revision, 0 for "it does not exist yet". The kill switch stays as it is. Raises
    Invalid naming what cannot be, NotFound for a model or alias that does not exist, Conflict.
    """
    check_route_name(name)
    spec = checked(spec)
    tx.alone()
    row = tx.session.get(Route, name)
    expect_revision(row.revision if row else 0, expected, f"the route '{name}'")
    for arm in spec.arms:
        _check_target(tx.session, arm)
    if row is None:
        return _view(_create(tx, name, spec))
    if row.rollout_id and _moves(row, spec):
        _check_own(tx.session, row)
    _check_kill_switch(row, spec)
    spec = replace(spec, salt=spec.salt or row.salt)
    if spec != _spec(row):
        before = _facts(row)
        row.rollout_id = "" if _moves(row, spec) else row.rollout_id
        _write(row, spec)
        _changed(tx, "route.changed", row, before)
    return _view(row)


def delete_route(tx: Transaction, name: str, expected: int | None = None) -> RouteView:
    """What it was. Raises NotFound, Conflict when its revision is not `expected` or a rollout
    is under way."""
    tx.alone()
    row = _expected(tx, name, expected)
    _check_own(tx.session, row)
    tx.session.delete(row)
    tx.changed("route.deleted", f"route:{name}", _facts(row), None)
    tx.desire()
    return _view(row)


def kill(tx: Transaction, name: str, arm: str = "", expected: int | None = None) -> RouteView:
    """Throw the kill switch: everything goes to `arm` ("": the stable one) until `unkill`.

    Weights, rules and mirrors stay as they are and count again afterwards. Raises NotFound,
    Invalid for an arm the route has not, Conflict.
    """
    tx.alone()
    row = _expected(tx, name, expected)
    names = [one["name"] for one in row.arms]
    arm = arm or names[0]
    if arm not in names:
        raise Invalid(
            f"the route '{name}' has no arm '{arm:.80}'; it has {', '.join(names)}", "arm"
        )
    return _switch(tx, row, arm, "route.killed")


def unkill(tx: Transaction, name: str, expected: int | None = None) -> RouteView:
    """Release the kill switch. Raises NotFound, Conflict."""
    tx.alone()
    return _switch(tx, _expected(tx, name, expected), "", "route.unkilled")


def set_weights(
    tx: Transaction, name: str, weights: Mapping[str, int], expected: int | None = None
) -> RouteView:
    """Change the weights, in buckets, of some arms; the stable one gets what is left. Raises
    NotFound, Invalid, Conflict."""
    tx.alone()
    row = _expected(tx, name, expected)
    spec = _spec(row)
    stable, *others = spec.arms
    for arm in weights:
        if arm not in [one.name for one in others]:
            raise Invalid(
                f"'{arm:.80}' is no arm of '{name}' whose weight can be set; there are "
                f"{', '.join(one.name for one in others) or 'none'} beside '{stable.name}'",
                "weights",
            )
    moved = [replace(one, weight=weights.get(one.name, one.weight)) for one in others]
    left = sum(one.weight for one in spec.arms) - sum(one.weight for one in moved)
    return set_route(
        tx, name, replace(spec, arms=(replace(stable, weight=left), *moved)), row.revision
    )


def own(tx: Transaction, name: str, spec: RouteSpec | None, rollout: str) -> None:
    """What a rollout makes of the route, None for no route; for `control.rollouts.route_weights`
    alone. Raises Conflict when the kill switch would send its traffic to another version."""
    row = tx.session.get(Route, name)
    if row is None:
        if spec is not None:
            _create(tx, name, spec, rollout)
        return
    _check_kill_switch(row, spec)
    before = _facts(row)
    if spec is None:
        tx.session.delete(row)
        tx.changed("route.deleted", f"route:{name}", before, None)
        tx.desire()
        return
    row.rollout_id = rollout
    _write(row, spec)
    if _facts(row) != before:
        _changed(tx, "route.changed", row, before)


def list_routes(
    session: Session, *, cursor: str | None = None, limit: int = paging.USUAL
) -> Page[RouteView]:
    """By name. Raises Invalid for a bad cursor or limit."""
    return paging.page(session, select(Route), SortOrder((Route.name,)), cursor, limit).map(
        _shown(session)
    )


def get_route(session: Session, name: str) -> RouteView:
    """Raises NotFound."""
    return _shown(session)(_found(session, name))


def find_route(session: Session, name: str) -> RouteView | None:
    row = session.get(Route, name)
    return None if row is None else _view(row)


def desired_route(view: RouteView) -> desired.DesiredRoute:
    """As gateways are told of it."""
    spec = view.spec
    return desired.DesiredRoute(
        name=view.name,
        arms=spec.arms,
        salt=spec.salt,
        unit=spec.unit,
        matches=spec.matches,
        mirrors=spec.mirrors,
        only=view.only,
        rollout=view.rollout,
    )


def every_route(session: Session) -> tuple[desired.DesiredRoute, ...]:
    """As gateways are told of them, by name."""
    rows = session.scalars(select(Route).order_by(Route.name))
    return tuple(desired_route(_view(row)) for row in rows)


def check_route_name(name: str) -> None:
    """Raises Invalid."""
    try:
        check_model_name(name)
    except Invalid as error:
        text = str(error).replace("cannot name a model", "cannot name a route")
        raise Invalid(text, "name") from None


def _check_target(session: Session, arm: DesiredArm) -> None:
    """Raises Invalid or NotFound naming the arm."""
    try:
        if arm.alias:
            get_alias(session, arm.model, arm.alias)
        else:
            check_version(session, arm.model, arm.version)
    except (NotFound, Invalid) as error:
        if session.get(Route, arm.model) is not None and session.get(Model, arm.model) is None:
            raise Invalid(
                f"the arm '{arm.name}' leads to the route '{arm.model}'; an arm leads to a version "
                "or an alias of a model",
                "arms",
            ) from None
        raise type(error)(f"the arm '{arm.name}' leads nowhere: {error}") from None


def _check_kill_switch(row: Route, spec: RouteSpec | None) -> None:
    """While it is thrown, what it leads to stays where it is."""
    before = {arm.name: (arm.model, arm.version, arm.alias) for arm in _spec(row).arms}
    after = {arm.name: (arm.model, arm.version, arm.alias) for arm in spec.arms} if spec else {}
    if row.only and before.get(row.only) != after.get(row.only):
        raise Conflict(
            f"the kill switch of '{row.name}' sends all to '{row.only}'; release it first"
        )


def _create(tx: Transaction, name: str, spec: RouteSpec, rollout: str = "") -> Route:
    if (tx.session.scalar(select(func.count()).select_from(Route)) or 0) >= MOST_ROUTES:
        raise Conflict(f"there are {MOST_ROUTES} routes; delete one first")
    row = Route(name=name, only="", rollout_id=rollout, revision=0)
    _write(row, replace(spec, salt=spec.salt or new_id(tx.now)))
    tx.session.add(row)
    _changed(tx, "route.created", row, None)
    return row


def _switch(tx: Transaction, row: Route, arm: str, action: str) -> RouteView:
    if row.only != arm:
        before = _facts(row)
        row.only = arm
        _changed(tx, action, row, before)
    return _view(row)


def _changed(tx: Transaction, action: str, row: Route, before: dict[str, Any] | None) -> None:
    row.revision += 1
    row.updated_at, row.updated_by = tx.now, tx.actor.principal
    tx.changed(action, f"route:{row.name}", before, _facts(row))
    tx.desire()


def _check_own(session: Session, row: Route) -> None:
    """Raises Conflict while a rollout is under way that moves the route."""
    rollout = session.get(Rollout, row.rollout_id) if row.rollout_id else None
    if rollout is not None and rollout.phase not in ENDED_PHASES:
        raise Conflict(
            f"the rollout {row.rollout_id} moves the arms of the route '{row.name}'; abort it first"
        )


def _moves(row: Route, spec: RouteSpec) -> bool:
    """Whether units may meet other arms, or their arms other versions."""
    before, salt = _spec(row), spec.salt or row.salt
    return (spec.arms, spec.mirrors, spec.unit, salt) != (
        before.arms,
        before.mirrors,
        before.unit,
        before.salt,
    )


def _expected(tx: Transaction, name: str, expected: int | None) -> Route:
    row = _found(tx.session, name)
    expect_revision(row.revision, expected, f"the route '{name}'")
    return row


def _found(session: Session, name: str) -> Route:
    row = session.get(Route, name) if name.isprintable() else None
    if row is None:
        raise NotFound(f"there is no route '{name:.150}'")
    return row


def _write(row: Route, spec: RouteSpec) -> None:
    row.salt, row.unit = spec.salt, spec.unit
    row.arms = [asdict(arm) for arm in spec.arms]
    row.matches = [asdict(one) for one in spec.matches]
    row.mirrors = [asdict(one) for one in spec.mirrors]


def _spec(row: Route) -> RouteSpec:
    """A later build may have written more."""
    return RouteSpec(
        arms=convert(row.arms, tuple[DesiredArm, ...]),
        unit=row.unit,
        salt=row.salt,
        matches=convert(row.matches, tuple[Match, ...]),
        mirrors=convert(row.mirrors, tuple[Mirror, ...]),
    )


def _facts(row: Route) -> dict[str, Any]:
    return {
        **spec_json(_spec(row)),
        "only": row.only or None,
        "rollout": row.rollout_id or None,
        "revision": row.revision,
    }


def _shown(session: Session) -> Callable[[Route], RouteView]:
    """`_view` with what is pending, which is read once for all."""
    pending = by_subject(session)
    return lambda row: _view(row, pending.get(f"route {row.name}", ()))


def _view(row: Route, pending: tuple[PendingView, ...] = ()) -> RouteView:
    return RouteView(
        name=row.name,
        spec=_spec(row),
        only=row.only,
        rollout=row.rollout_id,
        updated_at=row.updated_at,
        updated_by=row.updated_by,
        revision=row.revision,
        pending=pending,
    )
