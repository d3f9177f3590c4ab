"""How much the outputs of two networks differ on the same rows. Pure."""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Kind = Literal["classes", "values"]


MOST_NOISE = 1e9
"""Stands for infinity, which JSON lacks."""


class Difference(NamedTuple):
    """How far an output of the result is from that of the source.

    largest: absolute. relative: `largest` over the largest absolute value of the source's output.
    outliers: rows where the relative difference exceeds the tolerance. flips: rows whose argmax
    over the last axis differs, of outputs with at least two columns. rows: compared ones.
    """

    output: str
    rows: int
    largest: float
    relative: float
    outliers: int
    flips: int


def difference(output: str, source: Array, result: Array, tolerance: float) -> Difference:
    """Compare one output. NaN equals NaN; NaN against a number, or another shape, is infinite."""
    count = len(source)
    if source.shape != result.shape:
        return Difference(output, count, np.inf, np.inf, count, count)
    if source.dtype.kind not in "fiub" and source.dtype.kind != "V":
        changed = int(np.sum(np.any((source != result).reshape(count, -1), axis=1)))
        infinite = np.inf if changed else 0.0
        return Difference(output, count, infinite, infinite, changed, changed)
    before, after = source.astype(np.float64), result.astype(np.float64)
    by_row = _gaps(before, after).reshape(count, -1).max(axis=1, initial=0.0)
    scale = float(np.max(np.abs(before[np.isfinite(before)]), initial=0.0)) or 1.0
    largest = float(by_row.max(initial=0.0))
    outliers = int(np.sum(by_row / scale > tolerance))
    flips = int(np.sum(_labels(before) != _labels(after))) if _has_columns(before) else 0
    return Difference(output, count, largest, largest / scale, outliers, flips)


def differences(
    source: Mapping[str, Array], result: Mapping[str, Array], tolerance: float
) -> list[Difference]:
    """Compare all outputs of the source, by name; one that is missing is infinitely far."""
    return [
        difference(name, array, result.get(name, np.empty(0)), tolerance)
        for name, array in source.items()
    ]


def kind_of(output: Array, labels: Array | None) -> Kind:
    """What an output is where the spec does not say: classes if it is a matrix of floats."""
    if labels is not None:
        return "classes"
    floats = output.dtype.kind == "f"
    return "classes" if floats and output.ndim == 2 and output.shape[1] > 1 else "values"


def accuracy(output: Array, labels: Array) -> float:
    """Share of rows whose label is right: of the argmax, or of integers as they are."""
    found = output if output.dtype.kind in "iu" and output.ndim == 1 else _labels(output)
    return float(np.mean(found.reshape(len(labels), -1)[:, 0] == labels))


def agreement(source: Array, result: Array, kind: Kind) -> float:
    """1 where both are the same: share of equal argmax, or, of values, the coefficient of
    determination R2 of the result for the source."""
    if not np.all(np.isfinite(result)):
        return 0.0
    if kind == "classes":
        return float(np.mean(_labels(source) == _labels(result)))
    before, after = source.astype(np.float64), result.astype(np.float64)
    spread = float(np.sum((before - before.mean(axis=0)) ** 2))
    error = float(np.sum((before - after) ** 2))
    if error == 0.0:
        return 1.0
    return 1.0 - error / spread if spread else 0.0


def noise_ratio(source: Array, result: Array) -> float:
    """Power of the difference over the power of the source: 0 where both are the same."""
    before, after = source.astype(np.float64), result.astype(np.float64)
    power = float(np.sum(before**2))
    found = float(np.sum((before - after) ** 2)) / (power or 1.0)
    return found if np.isfinite(found) else MOST_NOISE


def _gaps(before: Array, after: Array) -> Array:
    with np.errstate(invalid="ignore"):
        gaps = np.abs(before - after)
    same = (before == after) | (np.isnan(before) & np.isnan(after))
    gaps[same] = 0.0
    gaps[np.isnan(gaps)] = np.inf
    found: Array = gaps
    return found


def _has_columns(output: Array) -> bool:
    return output.ndim > 1 and output.shape[-1] > 1 and output.dtype.kind == "f"


def _labels(output: Array) -> Array:
    labels: Array = np.argmax(np.nan_to_num(output, nan=-np.inf), axis=-1)
    return labels
