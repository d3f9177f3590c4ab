"""Metrics of python models' own (`pb_utils.MetricFamily`), kept by their workers, read on scrape.

`server.bls` tells of families and values. A model's families are shown while an instance of it has
them; what a worker has counted stays when it dies and is restarted.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Protocol

from backends.process.call_messages import FamilyRequest, MetricValues, SeriesValue
from backends.process.custom_metrics import (
    HISTOGRAM,
    MOST_FAMILIES,
    MOST_SERIES,
    buckets_fault,
    family_fault,
    labels_fault,
)
from server.metrics.custom_values import SeriesTotal, add, total_of
from server.metrics.metric_family import MetricFamily, escaped, head

COLLECT_S = 1.0
"""How long a scrape waits for workers: for one that holds the GIL, its last values are shown."""

Labels = tuple[tuple[str, str], ...]


class CustomMetricSource(Protocol):
    """One life of a worker. `spec`: what all lives of its instance have in common."""

    @property
    def spec(self) -> object: ...

    def query_metrics(self) -> None:
        """Ask it for its values, which follow by `CustomMetrics.receive`."""


@dataclass(slots=True)
class _Source:
    """What one life has told: families by name, values by family."""

    model: str
    families: dict[str, MetricFamily] = field(default_factory=dict)
    values: dict[str, tuple[SeriesValue, ...]] = field(default_factory=dict)
    answer: "asyncio.Future[None] | None" = None


@dataclass(slots=True)
class _Former:
    """What the lives of one instance that are over have counted, by family and labels; `last`: the
    latest of them."""

    spec: object
    last: _Source
    totals: dict[str, dict[Labels, SeriesTotal]] = field(default_factory=dict)


class CustomMetrics:
    """Those of one gateway; on the loop's thread."""

    def __init__(self) -> None:
        self._sources: dict[CustomMetricSource, _Source] = {}
        self._former: dict[int, _Former] = {}

    def register(self, source: CustomMetricSource, model: str, request: FamilyRequest) -> str:
        """Take a family; why not, "" if it is taken. Another version of the same model may have
        defined it otherwise; then the newer one holds."""
        name = request.name
        fault = family_fault(name, request.description, request.kind)
        known = self._sources.get(source)
        if not fault and known is not None and len(known.families) >= MOST_FAMILIES:
            fault = f"model '{model}' has {MOST_FAMILIES} metric families, the most there may be"
        family = MetricFamily(name, request.kind, request.description)
        fault = fault or self._conflict(model, family)
        if not fault:
            holder = self._sources.setdefault(source, _Source(model))
            if holder.families.get(name) != family:
                holder.values.pop(name, None)  # of a family that it has no more
            holder.families[name] = family
        return fault

    def _conflict(self, model: str, family: MetricFamily) -> str:
        for one in self._sources.values():
            other = one.families.get(family.name)
            if other is not None and other != family and one.model != model:
                return (
                    f"metric family '{family.name}' is a {other.type} of model '{one.model}' "
                    f"(\"{other.help}\"); model '{model}' cannot have it as a {family.type} "
                    f'("{family.help}"): take another name, or the same kind and description'
                )
        return ""

    def receive(self, source: CustomMetricSource, message: MetricValues) -> None:
        """A worker's values. Raises ValueError for what no worker of ours sends."""
        known = self._sources.get(source)
        if known is None:
            return
        _check(message, known.families)
        for name in known.families.keys() - message.families.keys():
            del known.families[name]
        known.values = {
            name: series for name, series in message.families.items() if name in known.families
        }
        if known.answer is not None and not known.answer.done():
            known.answer.set_result(None)
        known.answer = None

    def gone(self, source: CustomMetricSource) -> None:
        """A life of a worker is over; another one may follow."""
        known = self._sources.pop(source, None)
        if known is None:
            return
        if known.answer is not None and not known.answer.done():
            known.answer.set_result(None)
        former = self._former.setdefault(id(source.spec), _Former(source.spec, known))
        former.last = known
        for name, family in known.families.items():
            totals = former.totals.setdefault(name, {})
            for one in known.values.get(name, ()):
                add(totals, one.labels, total_of(one, family.type), lasting=True)

    def forget(self, spec: object) -> None:
        """An instance is closed for good."""
        self._former.pop(id(spec), None)

    async def collect(self) -> None:
        """Ask every worker that has metrics for their values, and wait a while for them."""
        loop = asyncio.get_running_loop()
        for source, known in list(self._sources.items()):
            if known.families and known.answer is None:
                known.answer = loop.create_future()
                source.query_metrics()
        waiting = [one.answer for one in self._sources.values() if one.answer is not None]
        if waiting:
            await asyncio.wait(waiting, timeout=COLLECT_S)

    def lines(self) -> Iterator[str]:
        """Prometheus' text format, instances and models merged by labels."""
        for family, totals in self._totals().values():
            yield from head(family._replace(help=escaped_help(family.help)))
            for labels, total in sorted(totals.items()):
                if bool(total.bounds) == (family.type == HISTOGRAM):  # or of a former life's family
                    yield from _series_lines(family, labels, total)

    def _totals(self) -> dict[str, tuple[MetricFamily, dict[Labels, SeriesTotal]]]:
        found: dict[str, tuple[MetricFamily, dict[Labels, SeriesTotal]]] = {}
        for known in reversed(list(self._sources.values())):
            for name, family in known.families.items():
                shown, totals = found.setdefault(name, (family, {}))
                if shown.type != family.type:
                    continue  # of an older version of the model, which defined it otherwise
                for one in known.values.get(name, ()):
                    add(totals, one.labels, total_of(one, family.type))
        for former in self._former.values():
            for name, series in former.totals.items():
                family_then = former.last.families.get(name)
                if name in found and family_then == found[name][0]:
                    for labels, total in series.items():
                        add(found[name][1], labels, total)
        return found


def escaped_help(text: str) -> str:
    """A description, as it stands behind HELP."""
    return text.replace("\\", r"\\").replace("\n", r"\n")


def _series_lines(family: MetricFamily, labels: Labels, total: SeriesTotal) -> Iterator[str]:
    if family.type != HISTOGRAM:
        yield f"{family.name}{_in_braces(labels)} {total.value!r}"
        return
    count = 0
    for bound, observed in zip((*total.bounds, None), total.counts, strict=True):
        count += observed
        shown = "+Inf" if bound is None else f"{bound!r}"
        yield f"{family.name}_bucket{_in_braces((*labels, ('le', shown)))} {count}"
    yield f"{family.name}_sum{_in_braces(labels)} {total.value!r}"
    yield f"{family.name}_count{_in_braces(labels)} {count}"


def _in_braces(labels: Iterable[tuple[str, str]]) -> str:
    pairs = ",".join(f'{name}="{escaped(value)}"' for name, value in labels)
    return f"{{{pairs}}}" if pairs else ""


def _check(message: MetricValues, families: Mapping[str, MetricFamily]) -> None:
    """Raises ValueError."""
    if sum(map(len, message.families.values())) > MOST_SERIES:
        raise ValueError(f"more than {MOST_SERIES} series of metrics")
    for name, series in message.families.items():
        if name in families:
            for one in series:
                _check_series(one, families[name].type == HISTOGRAM)


def _check_series(one: SeriesValue, is_histogram: bool) -> None:
    """Raises ValueError."""
    fault = labels_fault(one.labels) or (buckets_fault(one.bounds) if one.bounds else "")
    if fault or any(name == "le" for name, _ in one.labels if one.bounds):
        raise ValueError(f"labels or buckets of a metric that cannot be: {fault}")
    if list(one.labels) != sorted(one.labels):
        raise ValueError("labels of a metric that are not in order")
    if bool(one.bounds) != is_histogram:
        raise ValueError("a histogram without buckets, or buckets of another metric")
    if len(one.counts) != (len(one.bounds) + 1 if one.bounds else 0):
        raise ValueError("a histogram whose counts are not those of its buckets")
    if not isfinite(one.value) and one.bounds:
        raise ValueError("a histogram whose sum is no number")
