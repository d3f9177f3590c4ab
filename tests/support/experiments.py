"""Experiments for tests: a and b of one route, with one metric of each kind."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from control.experiments import service
from control.experiments.records.attribution import FeedbackOutcome
from control.experiments.records.exposures import ExposureCounts, ExposureEvent, expose
from control.experiments.records.feedback import ClientFeedback, feedback
from control.experiments.service import ExperimentView
from control.experiments.stamp import unit_key
from control.sql.database import Database
from support.control import ADA

CONVERSION = {
    "name": "conversion",
    "kind": "proportion",
    "direction": "up",
    "minimal_effect": 0.01,
}
REVENUE = {
    "name": "revenue",
    "kind": "mean",
    "direction": "up",
    "minimal_effect": 1.0,
    "repeated": "sum",
}
LATENCY = {
    "name": "latency",
    "kind": "quantile",
    "direction": "down",
    "minimal_effect": 0.1,
    "quantile": 0.5,
}
ERRORS = {
    "name": "errors",
    "kind": "proportion",
    "direction": "down",
    "minimal_effect": 0.005,
    "source": "server",
}
ARMS = [
    {"name": "a", "model": "digits", "version": 1},
    {"name": "b", "model": "digits", "version": 2},
]
TERMS: Mapping[str, Any] = {"arms": ARMS, "metrics": [CONVERSION, REVENUE, LATENCY, ERRORS]}


def draft(
    database: Database, name: str = "colour", route: str = "shop", **terms: Any
) -> ExperimentView:
    with database.change(ADA) as tx:
        return service.create_experiment(tx, name, route, {**TERMS, **terms})


def started(
    database: Database, name: str = "colour", route: str = "shop", **terms: Any
) -> ExperimentView:
    draft(database, name, route, **terms)
    with database.change(ADA) as tx:
        return service.start_experiment(tx, name)


def stopped(database: Database, name: str = "colour") -> ExperimentView:
    with database.change(ADA) as tx:
        return service.stop_experiment(tx, name)


def seen(view: ExperimentView, arm: str, *units: str, later_s: float = 0) -> list[ExposureEvent]:
    at = moment(view, later_s)
    return [ExposureEvent(view.id, unit_key(unit).hex(), arm, at) for unit in units]


def moment(view: ExperimentView, later_s: float) -> datetime:
    assert view.started_at is not None
    return view.started_at + timedelta(seconds=later_s)


def exposed(database: Database, rows: Iterable[ExposureEvent]) -> ExposureCounts:
    with database.change(ADA) as tx:
        return expose(tx, rows)


def told(
    view: ExperimentView, unit: str, value: object, metric: str = "conversion", **more: Any
) -> ClientFeedback:
    at = moment(view, more.pop("later_s", 0))
    return ClientFeedback(metric, value, at, experiment=view.name, unit=unit, **more)


def given(database: Database, *rows: ClientFeedback) -> list[FeedbackOutcome]:
    with database.change(ADA) as tx:
        return feedback(tx, rows)
