"""Metrics of a python model's own, on the server's /metrics: `pb_utils.MetricFamily` and `Metric`.

Values are kept here, in the worker; the server reads them when it is scraped, and merges those of a
model's instances. Kinds, names and error texts are Triton's.
"""

import threading
import time
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from queue import SimpleQueue

from backends.process import custom_metrics as rules
from backends.process.call_client import Answer, call_client
from backends.process.call_messages import (
    ControlAnswer,
    FamilyRequest,
    MetricValues,
    SeriesValue,
)
from backends.python.model_errors import TritonModelException

Labels = tuple[tuple[str, str], ...]

_KIND_TEXT = {kind: f"TRITONSERVER_METRIC_KIND_{kind.upper()}" for kind in rules.KINDS}


class CustomMetric:
    """One series of a family; made by `MetricFamily.Metric`. Any thread may use it."""

    def __init__(self, family: "_FamilyValues", labels: Labels, bounds: tuple[float, ...]) -> None:
        self._family = family
        self._labels = labels
        self._bounds = bounds
        self._lock = threading.Lock()
        self._value = 0.0
        self._set_ns = 0
        self._counts = [0] * (len(bounds) + 1) if bounds else []

    def increment(self, value: float) -> None:
        """Add to a counter (nothing negative) or to a gauge."""
        self._require(value)
        kind = self._family.kind
        if kind == rules.HISTOGRAM:
            raise TritonModelException(f"{_KIND_TEXT[kind]} does not support Increment")
        if kind == rules.COUNTER and value < 0:
            raise TritonModelException(
                f"{_KIND_TEXT[kind]} can only be incremented monotonically by non-negative values."
            )
        with self._lock:
            self._value += value

    def set(self, value: float) -> None:
        """Set a gauge."""
        self._require(value)
        if self._family.kind != rules.GAUGE:
            raise TritonModelException(f"{_KIND_TEXT[self._family.kind]} does not support Set")
        with self._lock:
            self._value, self._set_ns = float(value), time.monotonic_ns()

    def observe(self, value: float) -> None:
        """Add an observation to a histogram."""
        self._require(value)
        if self._family.kind != rules.HISTOGRAM:
            raise TritonModelException(f"{_KIND_TEXT[self._family.kind]} does not support Observe")
        with self._lock:
            self._value += value
            self._counts[bisect_left(self._bounds, value)] += 1

    def value(self) -> float:
        """This instance's value of a counter or a gauge."""
        self._require(0.0)
        if self._family.kind == rules.HISTOGRAM:
            raise TritonModelException(f"{_KIND_TEXT[rules.HISTOGRAM]} does not support Value")
        return self._value

    def read(self) -> SeriesValue:
        """What the server is told."""
        with self._lock:
            return SeriesValue(
                self._labels, self._value, self._set_ns, self._bounds, tuple(self._counts)
            )

    def _require(self, value: float) -> None:
        if self._family.ended:
            raise TritonModelException(
                "Invalid metric operation as the corresponding 'MetricFamily' has been deleted. "
                "The 'MetricFamily' object should be deleted AFTER its corresponding 'Metric' "
                "objects have been deleted."
            )
        if not isinstance(value, int | float):
            raise TritonModelException(f"a metric takes numbers, not {type(value).__name__}")


class _FamilyValues:
    """A family as the registry holds it; the model's `MetricFamily` may be gone."""

    def __init__(self, name: str, kind: str) -> None:
        self.name = name
        self.kind = kind
        self.series: dict[Labels, CustomMetric] = {}
        self.ended = False


class _Registry:
    """The families of this worker's model. Any thread may call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._families: dict[str, _FamilyValues] = {}

    def open(self, name: str, description: str, kind: str) -> _FamilyValues:
        """Raises `TritonModelException` where there can be no such family."""
        fault = rules.family_fault(name, description, kind)
        with self._lock:
            self._drop_ended()
            if not fault and name in self._families:
                fault = f"this model has a metric family '{name}' already; keep it and use it"
            if not fault and len(self._families) >= rules.MOST_FAMILIES:
                fault = (
                    f"this model has {rules.MOST_FAMILIES} metric families, the most there may be"
                )
            if fault:
                raise TritonModelException(fault)
            self._families[name] = family = _FamilyValues(name, kind)
        client = call_client()
        if client is None:
            return family
        client.read_metrics = self.read
        answers: SimpleQueue[Answer | None] = SimpleQueue()
        number = client.open(lambda answer, _fd: answers.put(answer))
        client.send(FamilyRequest(number, name, description, kind))
        answer = answers.get()
        client.close(number)
        if isinstance(answer, ControlAnswer) and answer.error:
            with self._lock:
                del self._families[name]
            raise TritonModelException(answer.error)
        return family

    def series(
        self, family: _FamilyValues, labels: Labels, bounds: tuple[float, ...]
    ) -> CustomMetric:
        """The series of these labels, made if there is none. Raises `TritonModelException`."""
        fault = rules.labels_fault(labels)
        if family.kind == rules.HISTOGRAM:
            fault = fault or rules.buckets_fault(bounds)
        elif bounds:
            fault = fault or f"{_KIND_TEXT[family.kind]} does not support buckets"
        with self._lock:
            found = family.series.get(labels)
            if found is not None and not fault:
                return found
            count = sum(len(one.series) for one in self._families.values())
            if not fault and count >= rules.MOST_SERIES:
                fault = f"this model has {rules.MOST_SERIES} series, the most there may be"
            if fault:
                raise TritonModelException(f"metric family '{family.name}': {fault}")
            made = family.series[labels] = CustomMetric(family, labels, bounds)
            return made

    def read(self) -> MetricValues:
        """Of the families that there still are; the server forgets all others."""
        with self._lock:
            self._drop_ended()
            families = {
                name: list(family.series.values()) for name, family in self._families.items()
            }
        return MetricValues(
            {name: tuple(one.read() for one in series) for name, series in families.items()}
        )

    def _drop_ended(self) -> None:
        for name in [name for name, family in self._families.items() if family.ended]:
            del self._families[name]


_registry = _Registry()


class PythonMetricFamily:
    """`pb_utils.MetricFamily`: series of one name, gone from /metrics when the model drops this
    object, or is unloaded."""

    COUNTER, GAUGE, HISTOGRAM = rules.KINDS

    def __init__(self, name: str, description: str, kind: str) -> None:
        """Raises `TritonModelException` for a name that is no metric's, the server's, in use by
        this model, or another model's with another kind or description."""
        self._values = _registry.open(name, description, kind)

    def Metric(
        self, labels: Mapping[str, str] | None = None, buckets: Sequence[float] | None = None
    ) -> CustomMetric:
        """The series of these labels; `buckets`: the upper bounds of a histogram's, ascending.
        Raises `TritonModelException`."""
        pairs = tuple(sorted((str(name), str(value)) for name, value in (labels or {}).items()))
        return _registry.series(self._values, pairs, tuple(map(float, buckets or ())))

    def __del__(self) -> None:
        values = getattr(self, "_values", None)
        if values is not None:
            values.ended = True  # a destructor may run anywhere: no lock, no message
