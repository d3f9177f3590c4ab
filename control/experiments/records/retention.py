"""What is known of single units is removed a while after the conclusion; sums and charts stay."""

from datetime import timedelta

from sqlalchemy import delete, select

from control.experiments.records.attribution import in_batches
from control.experiments.tables import Experiment, Exposure, Feedback
from control.experiments.views import ExperimentState
from control.sql.database import Transaction

KEEP = timedelta(days=30)
FORGET_AT_ONCE = 10_000


def forget_units(tx: Transaction, keep: timedelta = KEEP, at_once: int = FORGET_AT_ONCE) -> int:
    """Of one experiment that is concluded and was stopped longer ago than `keep`: its units' rows,
    about `at_once` of each kind; how many units. Repeat until it is 0."""
    done = select(Experiment.id).where(
        Experiment.state == ExperimentState.CONCLUDED, Experiment.stopped_at < tx.now - keep
    )
    for experiment_id in tx.session.scalars(done.order_by(Experiment.id)).all():
        units = {
            unit
            for kind in (Exposure, Feedback)
            for unit in tx.session.scalars(
                select(kind.unit).where(kind.experiment_id == experiment_id).limit(at_once)
            )
        }
        if units:
            _forget(tx, experiment_id, units)
            return len(units)
    return 0


def _forget(tx: Transaction, experiment_id: str, units: set[str]) -> None:
    for some in in_batches(units):
        for kind in (Feedback, Exposure):
            mine = (kind.experiment_id == experiment_id, kind.unit.in_(some))
            tx.session.execute(delete(kind).where(*mine))
