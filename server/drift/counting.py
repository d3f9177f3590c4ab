"""The counts of one version: features of copied tensors into histograms. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from control.drift.categories import MOST_CATEGORIES, category_counts, hash_of
from control.drift.numeric import fitted, numeric_counts
from control.drift.points import (
    CategoryCounts,
    FeatureCounts,
    FeatureRole,
    NumericCounts,
    VersionDrift,
)
from server.drift.features import LONGEST_TEXT, CopiedTensor, FeaturePlan, TensorPlan

Floats = npt.NDArray[np.float32]

_SMALLEST_SUM, _LARGEST_SUM = 0.99, 1.01
"""Scores that are not negative and sum up to that are probabilities."""


class NumericCounter:
    """A histogram that grows."""

    def __init__(self) -> None:
        self._buckets: dict[int, int] = {}
        self._shift = 0
        self._not_finite = 0

    def add(self, values: Floats) -> None:
        finite = values[np.isfinite(values)]
        self._not_finite += len(values) - len(finite)
        bits = np.ascontiguousarray(finite).view(np.int32).astype(np.int64)
        keys = np.where(bits >= 0, bits, -(bits & 0x7FFFFFFF)) >> self._shift
        buckets, counts = np.unique(keys, return_counts=True)
        found = self._buckets
        for bucket, count in zip(buckets.tolist(), counts.tolist(), strict=True):
            found[bucket] = found.get(bucket, 0) + count
        self._buckets, self._shift = fitted(found, self._shift)

    def counts(self) -> NumericCounts:
        return numeric_counts(self._buckets, self._shift, self._not_finite)


class CategoryCounter:
    """Counts of names that grow."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._folded = False

    def add(self, values: list[str]) -> None:
        self._counts.update(values)
        if self._folded or len(self._counts) > MOST_CATEGORIES:
            found = category_counts(self._counts, self._folded)
            self._counts, self._folded = Counter(found.counts), found.folded

    def counts(self) -> CategoryCounts:
        return category_counts(self._counts, self._folded)


class VersionCounts:
    """Of one version, since the last window. `names`: whether strings are kept, or hashes."""

    def __init__(self, model: str, version: int, plan: FeaturePlan, names: bool) -> None:
        self._model = model
        self._version = version
        self._left_out = plan.left_out
        self._names = names
        self._requests = 0
        self._features: dict[tuple[str, FeatureRole], NumericCounter | CategoryCounter] = {}

    def add(self, *requests: list[CopiedTensor]) -> None:
        """The tensors of each request; those of one form are counted at once: of 20 requests with
        16 features that takes 15 µs each, one by one 250."""
        self._requests += len(requests)
        for plan, values in _together(requests):
            match plan.kind:
                case "elements":
                    for index, name in enumerate(plan.features[: values.shape[1]]):
                        self._number(name, plan.role, values[:, index])
                case "channels":
                    self._moments(plan, values)
                case "summary":
                    self._summary(plan, values)
                case "texts":
                    self._texts(plan, values)
                case "scores":
                    self._scores(plan, values)
                case "labels":
                    self._labels(plan, values)

    def taken(self) -> VersionDrift | None:
        """What was counted, to begin anew; None of nothing."""
        if not self._requests:
            return None
        features = tuple(
            FeatureCounts(name, role, one.counts()) for (name, role), one in self._features.items()
        )
        requests, self._requests, self._features = self._requests, 0, {}
        return VersionDrift(self._model, self._version, requests, features, self._left_out)

    def _number(self, name: str, role: FeatureRole, values: Floats) -> None:
        found = self._features.get((name, role))
        if not isinstance(found, NumericCounter):
            found = self._features[name, role] = NumericCounter()
        found.add(values)

    def _names_of(self, name: str, role: FeatureRole, values: list[str]) -> None:
        found = self._features.get((name, role))
        if not isinstance(found, CategoryCounter):
            found = self._features[name, role] = CategoryCounter()
        found.add(values)

    def _moments(self, plan: TensorPlan, values: Floats) -> None:
        """`values`: (rows, channels, elements)."""
        mean, std = values.mean(axis=2), values.std(axis=2)
        for channel in range(min(values.shape[1], len(plan.features) // 2)):
            self._number(plan.features[2 * channel], plan.role, mean[:, channel])
            self._number(plan.features[2 * channel + 1], plan.role, std[:, channel])

    def _summary(self, plan: TensorPlan, values: Floats) -> None:
        """`values`: (rows, elements)."""
        size = np.full(len(values), values.shape[1], np.float32)
        if not values.shape[1]:
            self._number(plan.features[-1], plan.role, size)
            return
        found = (values.mean(axis=1), values.std(axis=1), values.min(axis=1), values.max(axis=1))
        for name, each in zip(plan.features, (*found, size), strict=False):
            self._number(name, plan.role, each)

    def _texts(self, plan: TensorPlan, rows: list[list[Any]]) -> None:
        for index in range(len(plan.features) // 2):
            column = [row[index] for row in rows if index < len(row)]
            self._names_of(plan.features[2 * index], plan.role, list(map(self._name, column)))
            lengths = np.array([len(one) for one in column if _has_length(one)], np.float32)
            self._number(plan.features[2 * index + 1], plan.role, lengths)

    def _scores(self, plan: TensorPlan, values: Floats) -> None:
        """`values`: (rows, classes). A row that is not finite has no label."""
        whole = values[np.isfinite(values).all(axis=1)]
        if not whole.size:
            return
        best = whole.argmax(axis=1)
        known = plan.labels
        names = [known[i] if i < len(known) else str(i) for i in best.tolist()]
        self._names_of(plan.features[0], "label", names)
        if len(plan.features) > 1:
            self._number(plan.features[1], "confidence", _confidence(whole))

    def _labels(self, plan: TensorPlan, values: list[Any]) -> None:
        self._names_of(plan.features[0], "label", list(map(self._name, values)))

    def _name(self, value: Any) -> str:
        """Of a string only a hash, unless names are to be kept."""
        if not isinstance(value, bytes | str):
            return str(value)
        text = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
        text = text[:LONGEST_TEXT]
        return text[:64].replace("#", "_") if self._names else hash_of(text)


def _together(requests: Iterable[list[CopiedTensor]]) -> Iterator[CopiedTensor]:
    """Tensors of the same form as one, with the rows of all."""
    forms: dict[tuple[str, str, tuple[int, ...]], tuple[TensorPlan, list[Any]]] = {}
    for tensors in requests:
        for plan, values in tensors:
            shape = () if isinstance(values, list) else values.shape[1:]
            forms.setdefault((plan.tensor, plan.role, shape), (plan, []))[1].append(values)
    for plan, parts in forms.values():
        if isinstance(parts[0], list):
            yield CopiedTensor(plan, [row for part in parts for row in part])
        else:
            yield CopiedTensor(plan, np.concatenate(parts))


def _has_length(value: Any) -> bool:
    return isinstance(value, bytes | str)


def _confidence(scores: Floats) -> Floats:
    """Of each row the probability of its best class: as it is, or by softmax."""
    total: Floats = scores.sum(axis=1)
    most: Floats = scores.max(axis=1)
    if scores.min() >= 0 and total.min() >= _SMALLEST_SUM and total.max() <= _LARGEST_SUM:
        return most
    apart = scores - most[:, np.newaxis]
    found: Floats = (1.0 / np.exp(apart).sum(axis=1)).astype(np.float32)
    return found
