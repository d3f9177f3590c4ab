"""What else is said of a rollout: by running experiments, and by the labels its versions give."""

from collections.abc import Iterator

from sqlalchemy.orm import Session

from control.drift import service as drift
from control.drift.labels import LabelComparison, compare_labels
from control.drift.windows import read_labels
from control.experiments import service as experiments
from control.experiments.evaluation import interval, null_of
from control.experiments.metrics import Direction, Metric, MetricSource, MissingValueRule
from control.experiments.service import ExperimentView
from control.experiments.terms import ExperimentArm
from control.experiments.totals import read_sums
from control.rollouts import queries
from control.rollouts.facts import Signals
from control.rollouts.guardrails import Harm
from control.rollouts.outlook import WatchedSignals
from control.rollouts.route_weights import CANDIDATE, STABLE
from control.rollouts.state import state_of
from control.rollouts.views import RolloutView
from control.statistics.sequential import Interval

_YOUNGER = (
    "it counts a unit without feedback as zero, and the candidate's units are younger than the "
    "stable version's: declare it with missing=ignored, and send the zeros as well"
)


def signals_of(session: Session, rollout_id: str) -> Signals:
    """Of the experiments on the rollout's route that compare its two versions, as the arms `stable`
    and `candidate`: each metric that clients send feedback for; and of drift, if the plan asks for
    it. Raises NotFound."""
    rollout = queries.get_rollout(session, rollout_id)
    watching = [one for one in experiments.running(session) if _compares(one, rollout)]
    harms = tuple(harm for one in watching for harm in _harms(session, one))
    return Signals(harms, _labels(session, rollout))


def watched_signals(session: Session, rollout: RolloutView) -> WatchedSignals:
    """Which of them there are for a rollout, whatever they say."""
    watching = [one for one in experiments.running(session) if _compares(one, rollout)]
    metrics = [metric for one in watching for metric in one.terms.metrics]
    return WatchedSignals(
        labels=drift.is_watched(session, rollout.model),
        experiment=any(one.source is MetricSource.FEEDBACK for one in metrics),
    )


def _labels(session: Session, rollout: RolloutView) -> LabelComparison | None:
    """Those that both versions gave since the phase began: before it they answered other shares of
    the traffic, and so other hours of it."""
    if not rollout.plan.label_drift or rollout.stable is None:
        return None
    model = rollout.model
    if not drift.is_watched(session, model):
        return LabelComparison(
            None, f"drift of {model} is not watched; `modelyard drift watch {model}` begins"
        )
    row = queries.find(session, rollout.id)
    since = state_of(row.plan, row.state).since
    return compare_labels(
        read_labels(session, model, rollout.stable, since),
        read_labels(session, model, rollout.candidate, since),
    )


def _compares(experiment: ExperimentView, rollout: RolloutView) -> bool:
    arms = {arm.name: arm for arm in experiment.terms.arms}
    return (
        experiment.route == rollout.name
        and _is(arms.get(STABLE), rollout.model, rollout.stable)
        and _is(arms.get(CANDIDATE), rollout.model, rollout.candidate)
    )


def _is(arm: ExperimentArm | None, model: str, version: int | None) -> bool:
    return arm is not None and (arm.model, arm.version) == (model, version)


def _harms(session: Session, experiment: ExperimentView) -> Iterator[Harm]:
    """All metrics together are wrong as often as the experiment's alpha says."""
    terms, sums = experiment.terms, read_sums(session, experiment.id)
    metrics = [one for one in terms.metrics if one.source is MetricSource.FEEDBACK]
    for metric in metrics:
        name = f"{metric.name} ({experiment.name})"
        found = interval(terms, metric, sums, (CANDIDATE, STABLE), terms.alpha / len(metrics))
        yield _harm(
            name, metric, found, _YOUNGER if metric.missing is MissingValueRule.ZERO else ""
        )


def _harm(name: str, metric: Metric, found: Interval, unfit: str) -> Harm:
    null = null_of(metric)
    lower, upper = found.lower - null, found.upper - null
    if metric.direction is Direction.UP:
        lower, upper = -upper, -lower
    return Harm(name, lower, upper, unfit)
