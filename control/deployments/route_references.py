"""Which routes refer to a model or an alias: what is referred to cannot be taken away."""

from collections.abc import Collection

from sqlalchemy import select
from sqlalchemy.orm import Session

from control.errors import Conflict
from control.tables import Route


def check_models_unrouted(session: Session, models: Collection[str]) -> None:
    """Raises Conflict naming the routes that lead to any of these models."""
    led = {
        model: [
            route.name for route in _all(session) if any(_leads(arm, model) for arm in route.arms)
        ]
        for model in models
    }
    text = "; ".join(f"'{model}' by {_quoted(routes)}" for model, routes in led.items() if routes)
    if text:
        raise Conflict(f"routes lead to what would be undeployed: {text}; change these first")


def check_alias_unrouted(session: Session, model: str, alias: str) -> None:
    """Raises Conflict naming the routes that lead to this alias."""
    routes = [
        route.name
        for route in _all(session)
        if any(_leads(arm, model) and arm["alias"] == alias for arm in route.arms)
    ]
    if routes:
        raise Conflict(
            f"the alias '{model}@{alias}' is the target of {_quoted(routes)}; change it first"
        )


def _all(session: Session) -> list[Route]:
    return list(session.scalars(select(Route).order_by(Route.name)))


def _leads(arm: dict[str, object], model: str) -> bool:
    return arm["model"] == model


def _quoted(routes: Collection[str]) -> str:
    return ", ".join(f"the route '{name}'" for name in routes)
