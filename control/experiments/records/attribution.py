"""Where feedback and exposures meet: each value counts once, for the arm its unit saw first.

The rules, per metric: `first` keeps a unit's first value, `max` its largest, `sum` adds them up and
`each` counts them one by one; the last two tell values apart by their key, so that a value sent
again counts once. A value counts from its unit's first sight until `window_s` after it, whenever it
arrives, until the experiment is concluded.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from sqlalchemy import select
from sqlalchemy.orm import Session

from control.experiments.metrics import Metric, RepeatedValueRule
from control.experiments.service import ExperimentView
from control.experiments.tables import Feedback
from control.experiments.totals import ExperimentTotals

SKEW = timedelta(minutes=5)
"""By how much clocks of clients and servers may differ."""

MOST_PER_UNIT = 1_000
UNITS_AT_ONCE = 500


class FeedbackOutcome(StrEnum):
    COUNTED = "counted"
    WAITING = "waiting"  # its unit has not been seen yet; counted when it is
    DUPLICATE = "duplicate"
    EARLY = "early"  # from before its unit saw the experiment
    LATE = "late"  # after the metric's window
    UNKNOWN = "unknown"  # no such experiment or metric takes feedback now, or no unit was named
    REFUSED = "refused"  # a value the metric cannot have, or one too many


@dataclass(frozen=True, slots=True)
class MetricValue:
    """One value for one metric of one experiment."""

    unit: str
    metric: Metric
    key: str
    value: float
    at: datetime


@dataclass(frozen=True, slots=True)
class FirstExposure:
    """When a unit first saw an experiment, and which arm."""

    arm: str
    at: datetime


Kept = dict[tuple[str, str], dict[str, Feedback]]
"""Unit and metric → key → row."""


def join(
    session: Session,
    view: ExperimentView,
    ledger: ExperimentTotals,
    given: Sequence[MetricValue],
    sights: Mapping[str, FirstExposure],
) -> list[FeedbackOutcome]:
    """Keep and count new values, one outcome each; `ledger` is held and written by the caller."""
    kept = _kept(session, view.id, {one.unit for one in given})
    return [
        _take(session, view, ledger, one, sights.get(one.unit), kept[one.unit, one.metric.name])
        for one in given
    ]


def count_waiting(
    session: Session,
    view: ExperimentView,
    ledger: ExperimentTotals,
    sights: Mapping[str, FirstExposure],
) -> None:
    """Count what came before its unit was seen, now that it is; remove what does not count."""
    for (unit, name), rows in _kept(session, view.id, sights.keys()).items():
        metric, sight = view.terms.metric(name), sights[unit]
        waiting = [row for row in rows.values() if not row.arm]
        for row in sorted(waiting, key=lambda one: one.at):
            if metric is None or _outside(view, sight, row.at):
                session.delete(row)
                continue
            before = _counted(metric, rows)
            row.arm = sight.arm
            _count(ledger, sight.arm, metric, before, row.value)


def _take(
    session: Session,
    view: ExperimentView,
    ledger: ExperimentTotals,
    one: MetricValue,
    sight: FirstExposure | None,
    rows: dict[str, Feedback],
) -> FeedbackOutcome:
    there = rows.get(one.key)
    larger = (
        there is not None
        and one.metric.repeated is RepeatedValueRule.MAX
        and one.value > there.value
    )
    if there is not None and not larger:
        return FeedbackOutcome.DUPLICATE
    outside = _outside(view, sight, one.at) if sight else None
    if outside or len(rows) >= MOST_PER_UNIT:
        return outside or FeedbackOutcome.REFUSED
    before, arm = _counted(one.metric, rows), sight.arm if sight else ""
    if there is None:
        there = rows[one.key] = Feedback(
            experiment_id=view.id, unit=one.unit, metric=one.metric.name, key=one.key
        )
        session.add(there)
    there.value, there.at, there.arm = one.value, one.at, arm
    if not sight:
        return FeedbackOutcome.WAITING
    _count(ledger, arm, one.metric, before, one.value)
    return FeedbackOutcome.COUNTED


def _count(
    ledger: ExperimentTotals, arm: str, metric: Metric, before: float | None, value: float
) -> None:
    """`before`: what the unit came to until now, None for nothing."""
    if before is None:
        ledger.add(arm, metric, value)
    else:
        after = before + value if metric.repeated is RepeatedValueRule.SUM else value
        ledger.replace(arm, metric, before, after)


def _counted(metric: Metric, rows: Mapping[str, Feedback]) -> float | None:
    """What a unit came to; None for nothing, and where each value is on its own."""
    if metric.repeated is RepeatedValueRule.EACH:
        return None
    values = [row.value for row in rows.values() if row.arm]
    return sum(values) if values else None


def _outside(view: ExperimentView, sight: FirstExposure, at: datetime) -> FeedbackOutcome | None:
    if at < sight.at - SKEW:
        return FeedbackOutcome.EARLY
    window = timedelta(seconds=view.terms.window_s)
    return FeedbackOutcome.LATE if at > sight.at + window else None


def _kept(session: Session, experiment_id: str, units: Collection[str]) -> Kept:
    kept: Kept = defaultdict(dict)
    for some in in_batches(units):
        query = select(Feedback).where(Feedback.experiment_id == experiment_id)
        for row in session.scalars(query.where(Feedback.unit.in_(some))):
            kept[row.unit, row.metric][row.key] = row
    return kept


def in_batches(units: Collection[str]) -> Iterator[list[str]]:
    """So few at a time that either database takes them as parameters."""
    ordered = sorted(units)
    for start in range(0, len(ordered), UNITS_AT_ONCE):
        yield ordered[start : start + UNITS_AT_ONCE]
