"""Metrics of sequence models: how many sequences live, wait and have come to an end."""

from collections.abc import Callable, Iterator, Sequence

from schedulers.counters import Counters, SequenceCounters
from server.metrics.metric_family import MetricFamily, head

_FIGURES: tuple[tuple[MetricFamily, Callable[[SequenceCounters], float]], ...] = (
    (
        MetricFamily("modelyard_sequences_live", "gauge", "Sequences in slots and in the backlog"),
        lambda counted: counted.live,
    ),
    (
        MetricFamily("modelyard_sequences_backlog", "gauge", "Sequences that wait for a slot"),
        lambda counted: counted.backlog,
    ),
    (
        MetricFamily("modelyard_sequence_slots", "gauge", "Slots for sequences, of all instances"),
        lambda counted: counted.slots,
    ),
    (
        MetricFamily("modelyard_sequence_slots_in_use", "gauge", "Slots that a sequence has"),
        lambda counted: counted.in_slots,
    ),
    (
        MetricFamily(
            "modelyard_sequence_oldest_age_seconds",
            "gauge",
            "Seconds since the oldest sequence that lives began",
        ),
        lambda counted: counted.oldest_s,
    ),
    (
        MetricFamily(
            "modelyard_sequence_state_bytes", "gauge", "Memory of the states that instances keep"
        ),
        lambda counted: counted.state_bytes(),
    ),
    (
        MetricFamily("modelyard_sequences_started", "counter", "Sequences started"),
        lambda counted: counted.started,
    ),
    (
        MetricFamily(
            "modelyard_sequences_expired", "counter", "Sequences ended because they were idle"
        ),
        lambda counted: counted.expired,
    ),
    (
        MetricFamily(
            "modelyard_sequences_lost", "counter", "Sequences lost because their instance died"
        ),
        lambda counted: counted.lost,
    ),
    (
        MetricFamily(
            "modelyard_sequence_conflicts",
            "counter",
            "Sequences started with an id that another one still had",
        ),
        lambda counted: counted.conflicts,
    ),
)

OF_SEQUENCES: tuple[MetricFamily, ...] = tuple(metric for metric, _ in _FIGURES)


def of_sequences(counters: Sequence[tuple[str, Counters]]) -> Iterator[str]:
    """The lines of these metrics, for the versions that have sequences; by their labels."""
    counted = [(label, one.sequences) for label, one in counters if one.sequences is not None]
    for metric, figure in _FIGURES:
        yield from head(metric)
        yield from (f"{metric.name}{{{label}}} {figure(one)}" for label, one in counted)
