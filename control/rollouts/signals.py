"""What running experiments say of a rollout: whether feedback shows harm."""

from collections.abc import Iterator

from sqlalchemy.orm import Session

from control.experiments import service as experiments
from control.experiments.evaluation import interval, null_of
from control.experiments.metrics import Direction, Metric, MetricSource, MissingValueRule
from control.experiments.service import ExperimentView
from control.experiments.terms import ExperimentArm
from control.experiments.totals import read_sums
from control.rollouts import queries
from control.rollouts.facts import Signals
from control.rollouts.guardrails import Harm
from control.rollouts.route_weights import CANDIDATE, STABLE
from control.rollouts.views import RolloutView
from control.statistics.sequential import Interval

_YOUNGER = (
    "it counts a unit without feedback as zero, and the candidate's units are younger than the "
    "stable version's: declare it with missing=ignored, and send the zeros as well"
)


def signals_of(session: Session, rollout_id: str) -> Signals:
    """Of the experiments on the rollout's route that compare its two versions, as the arms `stable`
    and `candidate`: each metric that clients send feedback for. Raises NotFound."""
    rollout = queries.get_rollout(session, rollout_id)
    watching = [one for one in experiments.running(session) if _compares(one, rollout)]
    return Signals(tuple(harm for one in watching for harm in _harms(session, one)))


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
