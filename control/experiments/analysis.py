"""How an experiment stands, and how it stood: analyses on request, and points for charts."""

from datetime import datetime, timedelta

from sqlalchemy import func, insert, select
from sqlalchemy.orm import Session

from control.experiments.analysis_text import sentence, verdict
from control.experiments.evaluation import Analysis, Comparison, finite, judge
from control.experiments.service import ExperimentView, get_experiment, running
from control.experiments.tables import Point
from control.experiments.totals import read_sums
from control.experiments.views import AnalysisView, ComparisonOfArm, PointView
from control.experiments.weight_changes import weights_moved
from control.sql.database import Transaction

LEAST_APART = timedelta(minutes=1)
POINTS_PER_AGE = 200
MOST_POINTS = 5_000


def analyse(session: Session, name: str) -> Analysis:
    """Raises NotFound."""
    return analysed(session, get_experiment(session, name))


def analysed(session: Session, view: ExperimentView) -> Analysis:
    moved = weights_moved(session, view.route, view.started_at, view.stopped_at)
    return judge(view.terms, read_sums(session, view.id), moved)


def view_of_analysis(analysis: Analysis) -> AnalysisView:
    """With its words."""
    return AnalysisView(
        control=analysis.control,
        units=analysis.units,
        progress=analysis.progress,
        crossed=analysis.crossed,
        sample_ratio=analysis.sample_ratio,
        comparisons=tuple(_comparison(one, analysis.control) for one in analysis.comparisons),
        verdict=verdict(analysis),
    )


def record_points(tx: Transaction) -> int:
    """A point for each running experiment that is due for one; how many. To be called every few
    seconds by whoever leads: a minute apart at first, then a two-hundredth of the age."""
    due = [view for view in running(tx.session) if _is_due(tx.session, view, tx.now)]
    if due:
        tx.alone()
    for view in due:
        _record(tx, view)
    return len(due)


def series(session: Session, name: str, metric: str, arm: str) -> list[PointView]:
    """How the interval of one comparison went, oldest first. Raises NotFound."""
    view = get_experiment(session, name)
    query = select(Point).where(
        Point.experiment_id == view.id, Point.metric == metric, Point.arm == arm
    )
    rows = session.scalars(query.order_by(Point.at).limit(MOST_POINTS))
    return [
        PointView(row.at, row.units, row.estimate, row.lower, row.upper, row.decision)
        for row in rows
    ]


def _comparison(one: Comparison, control: str) -> ComparisonOfArm:
    return ComparisonOfArm(
        metric=one.metric.name,
        arm=one.arm,
        value=finite(one.value),
        control_value=finite(one.control_value),
        n=one.n,
        estimate=finite(one.estimate),
        lower=finite(one.interval.lower),
        upper=finite(one.interval.upper),
        p_value=one.p_value,
        adjusted=one.adjusted,
        decision=one.decision,
        sentence=sentence(one, control),
    )


def _is_due(session: Session, view: ExperimentView, now: datetime) -> bool:
    last = session.scalar(select(func.max(Point.at)).where(Point.experiment_id == view.id))
    if last is None or view.started_at is None:
        return True
    return now - last >= max(LEAST_APART, (now - view.started_at) / POINTS_PER_AGE)


def _record(tx: Transaction, view: ExperimentView) -> None:
    analysis = analysed(tx.session, view)
    rows = [
        {
            "experiment_id": view.id,
            "metric": one.metric.name,
            "arm": one.arm,
            "at": tx.now,
            "units": sum(analysis.units.values()),
            "estimate": finite(one.estimate),
            "lower": finite(one.interval.lower),
            "upper": finite(one.interval.upper),
            "decision": one.decision.value,
        }
        for one in analysis.comparisons
    ]
    tx.session.execute(insert(Point), rows)
    tx.happened(
        "experiment.measured",
        f"experiment:{view.name}",
        progress=analysis.progress,
        verdict=verdict(analysis),
    )
