"""What units said or did after an answer: which experiments a value is for, and its taking.

A value finds its experiment by the stamp of the answer, by the experiment's name, or by a model
that is in an arm; its unit by the stamp or by itself. A stamp proves the arm, so its unit counts as
seen even before a gateway's batch tells of it.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sqlalchemy import delete, select

from control.errors import Invalid
from control.experiments.metrics import (
    Metric,
    MetricKind,
    MetricSource,
    RepeatedValueRule,
    value_of,
)
from control.experiments.records.attribution import SKEW, FeedbackOutcome, MetricValue, join
from control.experiments.records.exposures import ExposureEvent, expose_to, sights_of
from control.experiments.service import ExperimentView, view_of
from control.experiments.stamp import Stamp, unit_key
from control.experiments.tables import Experiment, Feedback
from control.experiments.terms import LONGEST_WINDOW_S
from control.experiments.totals import ExperimentTotals
from control.experiments.views import ExperimentState
from control.sql.database import Transaction
from control.statistics.histogram import Histogram

MOST_AT_ONCE, LONGEST_KEY = 2_000, 100
WAITS = timedelta(days=1)

_Address = tuple[str, str]
"""By what a value names its experiments, and the name."""


@dataclass(frozen=True, slots=True)
class ClientFeedback:
    """A value as a client tells it. One of `stamp`, `experiment` (a name) and `model` (or the
    public name that was asked) says where it belongs; `unit` as the client knows it, "" for the
    stamp's. `key` tells several values of one unit apart, where the metric takes several."""

    metric: str
    value: object
    at: datetime
    stamp: Stamp | None = None
    experiment: str = ""
    model: str = ""
    unit: str = ""
    key: str = ""


@dataclass(frozen=True, slots=True)
class ServerMeasurement:
    """What a gateway counted for a metric of source "server" since it last told: requests and how
    many of them were ones (errors, say), or their latencies."""

    experiment_id: str
    metric: str
    arm: str
    n: int = 0
    ones: int = 0
    latencies: Histogram | None = None


def feedback(tx: Transaction, rows: Sequence[ClientFeedback]) -> list[FeedbackOutcome]:
    """One outcome a row; a row that several experiments want counts in each, and says the best.

    Sending rows again is harmless. Raises ValueError for more than 2,000 rows: SQLite has
    one writer at a time, and these take it a quarter of a second.
    """
    if len(rows) > MOST_AT_ONCE:
        raise ValueError(f"at most {MOST_AT_ONCE} values at once")
    addressed: dict[_Address, list[int]] = defaultdict(list)
    for place, row in enumerate(rows):
        addressed[_address(row)].append(place)
    outcomes: dict[int, list[FeedbackOutcome]] = defaultdict(list)
    for view in _open(tx):
        mine = [place for address in _addresses(view) for place in addressed.get(address, ())]
        mine = [place for place in mine if _takes(view, rows[place].metric)]
        if mine:
            taken = _take(tx, view, [rows[place] for place in mine])
            for place, outcome in zip(mine, taken, strict=True):
                outcomes[place].append(outcome)
    return [_best(outcomes[place]) for place in range(len(rows))]


def measured(tx: Transaction, rows: Iterable[ServerMeasurement]) -> int:
    """Add what gateways counted; how many rows counted. The caller sees to it that each is told
    once: these are sums. Rows for an experiment that is not running, or no metric of it, do not."""
    batch: dict[str, list[ServerMeasurement]] = defaultdict(list)
    for row in rows:
        batch[row.experiment_id].append(row)
    counted = 0
    for experiment_id in sorted(batch):
        found = tx.session.get(Experiment, experiment_id)
        if found is not None and found.state == ExperimentState.RUNNING:
            view, ledger = view_of(found), ExperimentTotals(tx.session, experiment_id)
            counted += sum(_add(view, ledger, row) for row in batch[experiment_id])
            ledger.write()
    return counted


def forget_waiting(tx: Transaction, waits: timedelta = WAITS) -> None:
    """Remove values whose unit has not been seen for a day."""
    old = (Feedback.arm == "", Feedback.at < tx.now - waits)
    tx.session.execute(delete(Feedback).where(*old))


def _open(tx: Transaction) -> list[ExperimentView]:
    """Those for which a value may still count."""
    longest = tx.now - timedelta(seconds=LONGEST_WINDOW_S) - SKEW
    stopped = (Experiment.state == ExperimentState.STOPPED) & (Experiment.stopped_at > longest)
    query = select(Experiment).where((Experiment.state == ExperimentState.RUNNING) | stopped)
    return [view_of(row) for row in tx.session.scalars(query.order_by(Experiment.id))]


def _address(row: ClientFeedback) -> _Address:
    if row.experiment:
        return "experiment", row.experiment
    if row.stamp is None:
        return "model", row.model
    subject = row.stamp.route.subject
    return ("subject", subject) if subject else ("route", row.stamp.route.route)


def _addresses(view: ExperimentView) -> set[_Address]:
    models = {("model", name) for name in (view.route, *(arm.model for arm in view.terms.arms))}
    return {("experiment", view.name), ("subject", view.id), ("route", view.route)} | models


def _takes(view: ExperimentView, name: str) -> bool:
    metric = view.terms.metric(name)
    return metric is not None and metric.source is MetricSource.FEEDBACK


def _take(
    tx: Transaction, view: ExperimentView, rows: Sequence[ClientFeedback]
) -> list[FeedbackOutcome]:
    given = [_given(view, row, tx.now) for row in rows]
    ledger = ExperimentTotals(tx.session, view.id)
    expose_to(
        tx.session, view, ledger, [event for row in rows for event in _proven_exposures(view, row)]
    )
    good = [one for one in given if isinstance(one, MetricValue)]
    sights = sights_of(tx.session, view.id, {one.unit for one in good})
    taken = iter(join(tx.session, view, ledger, good, sights))
    ledger.write()
    return [next(taken) if isinstance(one, MetricValue) else one for one in given]


def _given(
    view: ExperimentView, row: ClientFeedback, now: datetime
) -> MetricValue | FeedbackOutcome:
    metric = view.terms.metric(row.metric)
    unit = row.stamp.unit if row.stamp else ""
    if row.unit and not unit:
        unit = unit_key(row.unit).hex()
    if metric is None or not unit:
        return FeedbackOutcome.UNKNOWN
    try:
        key, value = _key(metric, row.key), value_of(metric, row.value)
    except Invalid:
        return FeedbackOutcome.REFUSED
    return (
        MetricValue(unit, metric, key, value, row.at)
        if row.at <= now + SKEW
        else FeedbackOutcome.REFUSED
    )


def _key(metric: Metric, key: str) -> str:
    """Raises Invalid when the metric takes several values of a unit and none is told apart."""
    if metric.repeated in (RepeatedValueRule.FIRST, RepeatedValueRule.MAX):
        return ""
    if not key or len(key) > LONGEST_KEY or not key.isprintable():
        raise Invalid(
            f"'{metric.name}' takes several values of a unit: give each a key of its own, of at "
            f"most {LONGEST_KEY} characters, so that one sent again counts once",
            "key",
        )
    return key


def check(view: ExperimentView, row: ClientFeedback) -> None:
    """Raises Invalid saying why a row would be refused: for whoever sends a single one."""
    metric = view.terms.metric(row.metric)
    if metric is None or not _takes(view, row.metric):
        names = [one.name for one in view.terms.metrics if one.source is MetricSource.FEEDBACK]
        raise Invalid(
            f"the experiment '{view.name}' takes no feedback for '{row.metric:.80}'; it takes "
            f"{', '.join(names) or 'none'}",
            "metric",
        )
    _key(metric, row.key)
    value_of(metric, row.value)


def _proven_exposures(view: ExperimentView, row: ClientFeedback) -> list[ExposureEvent]:
    """What the stamp proves: only one of this very experiment, and of a unit."""
    stamp = row.stamp
    if stamp is None or not stamp.unit or stamp.route.subject != view.id:
        return []
    at, arm = datetime.fromtimestamp(stamp.at, UTC), stamp.route.arm
    ends = view.stopped_at
    if arm not in view.terms.shares or (ends is not None and at > ends + SKEW):
        return []
    return [ExposureEvent(view.id, stamp.unit, arm, at)]


def _add(view: ExperimentView, ledger: ExperimentTotals, row: ServerMeasurement) -> bool:
    metric = view.terms.metric(row.metric)
    if (
        metric is None
        or metric.source is not MetricSource.SERVER
        or row.arm not in view.terms.shares
    ):
        return False
    if metric.kind is MetricKind.QUANTILE and row.latencies is not None:
        ledger.add_histogram(row.arm, metric, row.latencies)
    elif metric.kind is MetricKind.PROPORTION and 0 <= row.ones <= row.n:
        ledger.add_counts(row.arm, metric, row.n, row.ones)
    else:
        return False
    return True


_BEST_FIRST = tuple(FeedbackOutcome)


def _best(outcomes: Sequence[FeedbackOutcome]) -> FeedbackOutcome:
    return min(outcomes, key=_BEST_FIRST.index, default=FeedbackOutcome.UNKNOWN)
