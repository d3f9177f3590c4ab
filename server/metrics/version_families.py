"""What every loaded version shows: one value or histogram in each of these families.

`server.metrics.exposition` asks for their text on each scrape. Of hundreds of versions few have
answered anything since the last one, so that lines are kept and made again only where their value
has changed.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from schedulers.cached_scheduler import CachedScheduler
from schedulers.counters import FAILURE_REASONS, FIRST_RESPONSE, BucketCounts, TwofoldHistogram
from server.metrics.histogram_lines import histogram_lines
from server.metrics.instances import OF_INSTANCES
from server.metrics.metric_family import MetricFamily, escaped, head
from server.served_version import ServedVersion
from server.settings.metrics_config import MetricsConfig

_VALUES: tuple[tuple[MetricFamily, Callable[[ServedVersion], float]], ...] = (
    (
        MetricFamily("nv_inference_request_success", "counter", "Successful requests"),
        lambda served: served.counters.success,
    ),
    (
        MetricFamily(
            "nv_inference_count", "counter", "Inferences performed (rows, batch sizes summed)"
        ),
        lambda served: served.counters.inferences,
    ),
    (
        MetricFamily("nv_inference_exec_count", "counter", "Model executions (batches)"),
        lambda served: served.counters.executions,
    ),
    (
        MetricFamily(
            "nv_inference_request_duration_us",
            "counter",
            "Time successful requests took from arrival to answer, in microseconds",
        ),
        lambda served: served.counters.success_ns // 1000,
    ),
    (
        MetricFamily(
            "nv_inference_queue_duration_us", "counter", "Time requests waited, in microseconds"
        ),
        lambda served: served.counters.queue_ns // 1000,
    ),
    (
        MetricFamily(
            "nv_inference_compute_input_duration_us",
            "counter",
            "Time spent preparing inputs, in microseconds",
        ),
        lambda served: served.counters.input_ns // 1000,
    ),
    (
        MetricFamily(
            "nv_inference_compute_infer_duration_us",
            "counter",
            "Time spent executing the model, in microseconds",
        ),
        lambda served: served.counters.infer_ns // 1000,
    ),
    (
        MetricFamily(
            "nv_inference_compute_output_duration_us",
            "counter",
            "Time spent on outputs, in microseconds",
        ),
        lambda served: served.counters.output_ns // 1000,
    ),
    (
        MetricFamily(
            "nv_inference_pending_request_count",
            "gauge",
            "Requests queued and not yet executing",
        ),
        lambda served: served.counters.pending,
    ),
    (
        MetricFamily(
            "nv_cache_num_hits_per_model", "counter", "Requests the response cache answered"
        ),
        lambda served: served.counters.cache_hits,
    ),
    (
        MetricFamily(
            "nv_cache_num_misses_per_model",
            "counter",
            "Requests the response cache could not answer and that were executed",
        ),
        lambda served: served.counters.cache_misses,
    ),
    (
        MetricFamily(
            "nv_cache_hit_duration_per_model",
            "counter",
            "Time spent on answering from the response cache, in microseconds",
        ),
        lambda served: served.counters.cache_hit_ns // 1000,
    ),
    (
        MetricFamily(
            "nv_cache_miss_duration_per_model",
            "counter",
            "Time spent on looking up and keeping what the cache did not have, in microseconds",
        ),
        lambda served: served.counters.cache_miss_ns // 1000,
    ),
    (
        MetricFamily(
            "nv_model_load_duration_secs",
            "gauge",
            "Seconds the version took to check, load and warm",
        ),
        lambda served: served.load_seconds,
    ),
    *OF_INSTANCES,
)

_OF_CACHE = "nv_cache_"
"""What only versions with a response cache have, as in Triton."""

_FAILURE = MetricFamily("nv_inference_request_failure", "counter", "Failed requests, by reason")

_REQUEST_DURATION = MetricFamily(
    "modelyard_request_duration_seconds",
    "histogram",
    "Time from a successful request's arrival to its answer, in seconds",
)
_QUEUE_DURATION = MetricFamily(
    "modelyard_queue_duration_seconds",
    "histogram",
    "Time successful requests waited before execution, in seconds",
)
_FIRST_RESPONSE = MetricFamily(
    FIRST_RESPONSE,
    "histogram",
    "Time from a successful request's arrival to its answer, in milliseconds",
)


class _VersionFamily(NamedTuple):
    """A family with lines of each version. `key`: what the lines depend on, compared from scrape to
    scrape; None for a version that has none. `lines`: of a version's labels and its key."""

    metric: MetricFamily
    key: Callable[[ServedVersion], Any]
    lines: Callable[[str, Any], Iterable[str]]


def _value(metric: MetricFamily, value: Callable[[ServedVersion], float]) -> _VersionFamily:
    def lines(label: str, key: float) -> tuple[str]:
        return (f"{metric.name}{{{label}}} {key}",)

    def of_cached(served: ServedVersion) -> float | None:
        return value(served) if isinstance(served.scheduler, CachedScheduler) else None

    is_of_cache = metric.name.startswith(_OF_CACHE)
    return _VersionFamily(metric, of_cached if is_of_cache else value, lines)


def _failures(served: ServedVersion) -> tuple[int, ...]:
    failure = served.counters.failure
    return tuple([failure[reason] for reason in FAILURE_REASONS])


def _failure_lines(label: str, counts: Sequence[int]) -> Iterator[str]:
    """With the labels in the order of their names, as Triton's library writes them."""
    before, _, after = label.rpartition(",version=")
    for reason, count in zip(FAILURE_REASONS, counts, strict=True):
        yield f'{_FAILURE.name}{{{before},reason="{reason}",version={after}}} {count}'


def _histogram(
    metric: MetricFamily, histogram: Callable[[ServedVersion], BucketCounts], per_s: int = 1
) -> _VersionFamily:
    def key(served: ServedVersion) -> tuple[Any, ...]:
        found = histogram(served)
        return found.bounds_ns, found.sum_ns, *found.counts

    def lines(label: str, key: tuple[Any, ...]) -> Iterator[str]:
        bounds_ns, sum_ns, *counts = key
        return histogram_lines(metric.name, label, BucketCounts(counts, sum_ns, bounds_ns), per_s)

    return _VersionFamily(metric, key, lines)


def _first_response(served: ServedVersion) -> BucketCounts:
    """In the buckets that the config's model_metrics chose, or else in ours."""
    both = served.counters.request_histogram
    return both.second if isinstance(both, TwofoldHistogram) else both


_FAMILIES: tuple[_VersionFamily, ...] = (
    *(_value(metric, value) for metric, value in _VALUES),
    _VersionFamily(_FAILURE, _failures, _failure_lines),
    _histogram(_REQUEST_DURATION, lambda served: served.counters.request_histogram),
    _histogram(_QUEUE_DURATION, lambda served: served.counters.queue_histogram),
    _histogram(_FIRST_RESPONSE, _first_response, 1000),
)

OF_VERSIONS: tuple[MetricFamily, ...] = tuple(family.metric for family in _FAMILIES)
"""The families that every version has, in the order in which they are written."""


class _VersionLines:
    """The lines of one version by family; `keys` is what they were made from."""

    __slots__ = ("keys", "label", "texts", "version")

    def __init__(self, served: ServedVersion) -> None:
        self.version = served.version
        self.label = labels(served)
        self.keys: list[Any] = [None] * len(_FAMILIES)
        self.texts = [""] * len(_FAMILIES)


class VersionTexts:
    """The text of all versions, from one scrape to the next."""

    def __init__(self, shown: MetricsConfig | None = None) -> None:
        self.shown = shown = shown or MetricsConfig()
        self._families = [
            (number, family) for number, family in enumerate(_FAMILIES) if _is_shown(family, shown)
        ]
        self._rows: dict[int, _VersionLines] = {}
        self._texts = [""] * len(_FAMILIES)

    def render(self, served: Iterable[ServedVersion]) -> str:
        """All families of these versions, in their order; each line ends with a line feed."""
        before = self._rows
        served = list(served)  # known by their ids, so that none is kept that was unloaded
        self._rows = rows = {id(one): self._row(one, before.get(id(one))) for one in served}
        is_same = list(before.values()) == list(rows.values())
        for number, family in self._families:
            if self._refresh(number, family, served) or not is_same or not self._texts[number]:
                lines = "".join([row.texts[number] for row in rows.values()])
                shown = lines or not family.metric.name.startswith(_OF_CACHE)
                self._texts[number] = "\n".join((*head(family.metric), lines)) if shown else ""
        return "".join([self._texts[number] for number, _ in self._families])

    def _row(self, served: ServedVersion, known: _VersionLines | None) -> _VersionLines:
        if known is not None and known.version is served.version:
            return known
        return _VersionLines(served)

    def _refresh(self, number: int, family: _VersionFamily, served: list[ServedVersion]) -> bool:
        """Make the lines again whose key has changed; whether there are any."""
        key_of, lines, changed = family.key, family.lines, False
        for one, row in zip(served, self._rows.values(), strict=True):
            key = key_of(one)
            if key != row.keys[number]:
                row.keys[number], changed = key, True
                text = "" if key is None else "\n".join(lines(row.label, key)) + "\n"
                row.texts[number] = text
        return changed


def _is_shown(family: _VersionFamily, shown: MetricsConfig) -> bool:
    if family.metric is _FIRST_RESPONSE:
        return shown.histograms
    return shown.counters or not family.metric.name.endswith("_duration_us")


def labels(served: ServedVersion) -> str:
    """The config's metric_tags with `_` in front of their names, `model`, and `version` last."""
    pairs = {
        "_" + _NOT_IN_NAME.sub("_", tag): value
        for tag, value in sorted(served.version.config.metric_tags.items())
    }
    pairs |= {"model": served.version.name, "version": str(served.version.number)}
    return ",".join(f'{name}="{escaped(value)}"' for name, value in pairs.items())


_NOT_IN_NAME = re.compile(r"[^a-zA-Z0-9_]")
