"""The sums an experiment is judged by: kept per arm and metric, so that no look reads all rows.

Whoever changes them holds them all first, in order: changes of one experiment follow each other.
"""

from collections.abc import Mapping

from sqlalchemy import insert, select
from sqlalchemy.orm import Session

from control.experiments.metrics import Metric, MetricKind
from control.experiments.sums import UNITS, Key, Sums
from control.experiments.tables import Total
from control.experiments.terms import ExperimentTerms
from control.statistics.histogram import Histogram
from control.statistics.sequential import Moments


class ExperimentTotals:
    """The sums of one experiment while a transaction changes them; `write` them at its end."""

    def __init__(self, session: Session, experiment_id: str) -> None:
        """Waits for the changes before this one; nobody else changes them until the commit."""
        query = select(Total).where(Total.experiment_id == experiment_id)
        ordered = query.order_by(Total.arm, Total.metric).with_for_update()
        found = session.scalars(ordered.execution_options(populate_existing=True))
        self._rows = {(row.arm, row.metric): row for row in found}
        self._sums: dict[Key, Sums] = {}

    def expose(self, arm: str) -> None:
        self._of(arm, UNITS).n += 1

    def cross(self, arm: str) -> None:
        self._of(arm, UNITS).ones += 1

    def add(self, arm: str, metric: Metric, value: float) -> None:
        """A new value."""
        sums = self._of(arm, metric.name)
        sums.n, sums.ones = sums.n + 1, sums.ones + (value == 1.0)
        if metric.kind is MetricKind.QUANTILE:
            sums.histogram.add(value)
        else:
            sums.moments = sums.moments.merged(Moments(1, value))

    def replace(self, arm: str, metric: Metric, old: float, new: float) -> None:
        """The value of a unit that had one already; never of a quantile."""
        sums = self._of(arm, metric.name)
        sums.ones += (new == 1.0) - (old == 1.0)
        sums.moments = sums.moments.without(old).merged(Moments(1, new))

    def add_counts(self, arm: str, metric: Metric, n: int, ones: int) -> None:
        sums = self._of(arm, metric.name)
        sums.n, sums.ones = sums.n + n, sums.ones + ones

    def add_histogram(self, arm: str, metric: Metric, more: Histogram) -> None:
        sums = self._of(arm, metric.name)
        sums.histogram, sums.n = sums.histogram.merged(more), sums.n + more.n

    def write(self) -> None:
        for key, sums in self._sums.items():
            row = self._rows[key]
            row.n, row.ones = sums.n, sums.ones
            row.mean, row.m2 = sums.moments.mean, sums.moments.m2
            row.histogram = sums.histogram.as_list()

    def _of(self, arm: str, metric: str) -> Sums:
        found = self._sums.get((arm, metric))
        if found is None:
            found = self._sums[arm, metric] = _sums(self._rows[arm, metric])
        return found


def open_ledger(session: Session, experiment_id: str, terms: ExperimentTerms) -> None:
    """All of it at nothing, when the experiment starts."""
    nothing = {"n": 0, "ones": 0, "mean": 0.0, "m2": 0.0, "histogram": []}
    rows = [
        {"experiment_id": experiment_id, "arm": arm.name, "metric": metric, **nothing}
        for arm in terms.arms
        for metric in (UNITS, *(metric.name for metric in terms.metrics))
    ]
    session.flush()  # the experiment's own row comes before those that refer to it
    session.execute(insert(Total), rows)


def read_sums(session: Session, experiment_id: str) -> Mapping[Key, Sums]:
    query = select(Total).where(Total.experiment_id == experiment_id)
    return {(row.arm, row.metric): _sums(row) for row in session.scalars(query)}


def _sums(row: Total) -> Sums:
    histogram = Histogram.from_list(row.histogram)
    return Sums(row.n, row.ones, Moments(row.n, row.mean, row.m2), histogram)
