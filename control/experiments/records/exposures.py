"""Who saw which arm first: one row per experiment and unit, however often it is told.

Batches come from gateways, several times when one was cut off. Nothing here takes a number from
the event counter, so that batches of different experiments do not wait for each other; `expose`
must not follow a change that did.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import insert, select, update
from sqlalchemy.orm import Session

from control.experiments.records.attribution import SKEW, FirstExposure, count_waiting, in_batches
from control.experiments.service import ExperimentView, view_of
from control.experiments.tables import Experiment, Exposure
from control.experiments.totals import ExperimentTotals
from control.experiments.views import ExperimentState
from control.sql.database import Transaction

MOST_AT_ONCE = 10_000


@dataclass(frozen=True, slots=True)
class ExposureEvent:
    """A unit was answered by an arm. `unit`: hex of `control.experiments.stamp.unit_key`."""

    experiment_id: str
    unit: str
    arm: str
    at: datetime


@dataclass(frozen=True, slots=True)
class ExposureCounts:
    """What became of a batch, in rows. `new`: units first seen; `known`: seen before, or twice in
    the batch; `crossed`: of these, in another arm than first; `refused`: no such arm, or the
    experiment was not running at that moment."""

    new: int = 0
    known: int = 0
    crossed: int = 0
    refused: int = 0


def expose(tx: Transaction, rows: Iterable[ExposureEvent]) -> ExposureCounts:
    """Idempotent, and in any order: a unit's arm is the one it was first told of. Raises ValueError
    for more than 10,000 rows."""
    batch: dict[str, list[ExposureEvent]] = defaultdict(list)
    for row in rows:
        batch[row.experiment_id].append(row)
    if sum(map(len, batch.values())) > MOST_AT_ONCE:
        raise ValueError(f"at most {MOST_AT_ONCE} exposures at once")
    tally: Counter[str] = Counter()
    for experiment_id in sorted(batch):
        found = tx.session.get(Experiment, experiment_id)
        view = view_of(found) if found else None
        taken = [row for row in batch[experiment_id] if view and _fits(view, row, tx.now)]
        tally["refused"] += len(batch[experiment_id]) - len(taken)
        if view and taken:
            ledger = ExperimentTotals(tx.session, view.id)
            tally += expose_to(tx.session, view, ledger, taken)
            ledger.write()
    return ExposureCounts(tally["new"], tally["known"], tally["crossed"], tally["refused"])


def expose_to(
    session: Session, view: ExperimentView, ledger: ExperimentTotals, rows: Iterable[ExposureEvent]
) -> Counter[str]:
    """The same for rows that fit one experiment, whose `ledger` the caller holds and writes."""
    by_unit: dict[str, list[ExposureEvent]] = defaultdict(list)
    for row in sorted(rows, key=lambda one: one.at):
        by_unit[row.unit].append(row)
    before = sights_of(session, view.id, by_unit)
    new = {
        unit: FirstExposure(events[0].arm, events[0].at)
        for unit, events in by_unit.items()
        if unit not in before
    }
    _insert(session, view.id, ledger, new)
    count_waiting(session, view, ledger, new)
    first = before | new
    crossed = {
        unit
        for unit, events in by_unit.items()
        if any(one.arm != first[unit].arm for one in events)
    }
    total = sum(map(len, by_unit.values()))
    _mark_crossed(session, view.id, ledger, crossed)
    return Counter(new=len(new), known=total - len(new), crossed=len(crossed))


def sights_of(
    session: Session, experiment_id: str, units: Collection[str]
) -> dict[str, FirstExposure]:
    """Of the units that have been seen."""
    found: dict[str, FirstExposure] = {}
    for some in in_batches(units):
        query = select(Exposure.unit, Exposure.arm, Exposure.first_at).where(
            Exposure.experiment_id == experiment_id, Exposure.unit.in_(some)
        )
        found |= {unit: FirstExposure(arm, at) for unit, arm, at in session.execute(query)}
    return found


def _fits(view: ExperimentView, row: ExposureEvent, now: datetime) -> bool:
    if view.started_at is None or view.state is ExperimentState.CONCLUDED:
        return False
    ends = view.stopped_at or now
    inside = view.started_at - SKEW <= row.at <= ends + SKEW
    return inside and row.arm in view.terms.shares


def _insert(
    session: Session, experiment_id: str, ledger: ExperimentTotals, new: dict[str, FirstExposure]
) -> None:
    """Nobody else inserts meanwhile: whoever does holds the ledger."""
    for unit in new:
        ledger.expose(new[unit].arm)
    for some in in_batches(new):
        rows = [
            {
                "experiment_id": experiment_id,
                "unit": unit,
                "arm": new[unit].arm,
                "first_at": new[unit].at,
                "crossed": False,
            }
            for unit in some
        ]
        session.execute(insert(Exposure), rows)


def _mark_crossed(
    session: Session, experiment_id: str, ledger: ExperimentTotals, units: Collection[str]
) -> None:
    """Once each."""
    for some in in_batches(units):
        changed = (
            update(Exposure)
            .where(
                Exposure.experiment_id == experiment_id,
                Exposure.unit.in_(some),
                Exposure.crossed.is_(False),
            )
            .values(crossed=True)
        )
        for arm in session.scalars(changed.returning(Exposure.arm)).all():
            ledger.cross(arm)
