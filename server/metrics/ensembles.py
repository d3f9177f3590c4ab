"""Metrics of ensembles: calls of each step by how they ended, rows and times."""

from collections.abc import Callable, Iterator, Sequence

from schedulers.counters import Counters, StepCounters
from server.metrics.metric_family import MetricFamily, escaped, head

_CALLS = MetricFamily(
    "modelyard_ensemble_step_calls", "counter", "Calls of an ensemble's step, by outcome"
)

_OUTCOMES: tuple[tuple[str, Callable[[StepCounters], int]], ...] = (
    ("answered", lambda step: step.answered),
    ("failed", lambda step: step.failed),
    ("cancelled", lambda step: step.cancelled),
    ("skipped", lambda step: step.skipped),
)

_FIGURES: tuple[tuple[MetricFamily, Callable[[StepCounters], float]], ...] = (
    (
        MetricFamily("modelyard_ensemble_step_rows", "counter", "Rows of calls that have ended"),
        lambda step: step.rows,
    ),
    (
        MetricFamily(
            "modelyard_ensemble_step_skipped_rows", "counter", "Rows for which a step was left out"
        ),
        lambda step: step.skipped_rows,
    ),
    (
        MetricFamily(
            "modelyard_ensemble_step_seconds",
            "counter",
            "Seconds that answered calls of a step took, summed",
        ),
        lambda step: step.total_ns / 1e9,
    ),
    (
        MetricFamily(
            "modelyard_ensemble_step_queue_seconds",
            "counter",
            "Seconds of them that the calls waited in the queue of the step's model, summed",
        ),
        lambda step: step.queue_ns / 1e9,
    ),
)

OF_ENSEMBLES: tuple[MetricFamily, ...] = (_CALLS, *(metric for metric, _ in _FIGURES))


def of_ensembles(counters: Sequence[tuple[str, Counters]]) -> Iterator[str]:
    """The lines of these metrics, for the versions that are ensembles; by their labels."""
    steps = [
        (f'{label},step="{step.number}",callee="{escaped(step.model)}"', step)
        for label, one in counters
        for step in one.steps
    ]
    yield from head(_CALLS)
    for label, step in steps:
        for outcome, count in _OUTCOMES:
            yield f'{_CALLS.name}{{{label},outcome="{outcome}"}} {count(step)}'
    for metric, figure in _FIGURES:
        yield from head(metric)
        yield from (f"{metric.name}{{{label}}} {figure(step)}" for label, step in steps)
