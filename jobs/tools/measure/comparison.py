"""How much the outputs of two networks differ on the same rows. Pure."""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Kind = Literal["classes", "values"]


MOST_NOISE = 1e9
"""Stands for infinity, which JSON lacks."""
NO_CLASS = int(np.iinfo(np.int64).min)
"""The class of a row with NaN, which no label is."""
LEAST_OF_COLUMN = 8
"""Values of a column, below which its largest says little of it."""


class Difference(NamedTuple):
    """How far an output of the result is from that of the source.

    largest: absolute. relative: `largest` over the largest absolute value of the source's output.
    outliers: rows where the relative difference exceeds the tolerance. flips: rows whose argmax
    over the last axis differs, of outputs with at least two columns. rows: compared ones. uneven:
    the largest value of a column over that of the smallest column; 1 where they are too few to say.
    """

    output: str
    rows: int
    largest: float
    relative: float
    outliers: int
    flips: int
    uneven: float = 1.0


def difference(output: str, source: Array, result: Array, tolerance: float) -> Difference:
    """Compare one output. NaN equals NaN; NaN against a number, or another shape, is infinite.
    Whole numbers, booleans and texts are the same or infinitely far: they may be classes."""
    source, result = np.atleast_1d(source), np.atleast_1d(result)
    count = len(source)
    if source.shape != result.shape:
        return Difference(output, count, np.inf, np.inf, count, count)
    if not _is_float(source) and (not _is_float(result) or source.dtype.kind not in "iub"):
        changed = int(np.sum(np.any((source != result).reshape(count, -1), axis=1)))
        infinite = np.inf if changed else 0.0
        return Difference(output, count, infinite, infinite, changed, changed)
    before, after = source.astype(np.float64), result.astype(np.float64)
    by_row = _gaps(before, after).reshape(count, -1).max(axis=1, initial=0.0)
    scale = float(np.max(np.abs(before[np.isfinite(before)]), initial=0.0)) or 1.0
    largest = float(by_row.max(initial=0.0))
    outliers = int(np.sum(by_row / scale > tolerance))
    flips = int(np.sum(_argmax(before) != _argmax(after))) if _has_columns(before) else 0
    return Difference(output, count, largest, largest / scale, outliers, flips, _uneven(before))


def differences(
    source: Mapping[str, Array], result: Mapping[str, Array], tolerance: float
) -> list[Difference]:
    """Compare all outputs of the source, by name; one that is missing is infinitely far."""
    return [
        difference(name, array, result.get(name, np.empty(0)), tolerance)
        for name, array in source.items()
    ]


def kind_of(output: Array, labels: Array | None) -> Kind:
    """What an output is where the spec does not say: with labels classes, if it can tell as many;
    without, classes if it is a matrix of floats."""
    if labels is not None:
        return "classes" if tells_classes(output, labels) else "values"
    floats = output.dtype.kind == "f"
    return "classes" if floats and output.ndim == 2 and output.shape[1] > 1 else "values"


def tells_classes(output: Array, labels: Array) -> bool:
    """Whether the output can have a class for each label: one column of floats has only two."""
    return not (_is_single(output) and _is_float(output)) or bool(
        np.all((labels == 0) | (labels == 1))
    )


def classes_of(output: Array, source: Array) -> Array:
    """The class of each row, int64; NO_CLASS where it has NaN.

    The argmax over the last axis. Of one column, whole numbers are classes; floats are class 1
    above 0.5, or above 0 where the source's output has values outside of 0 to 1.
    """
    if not _is_single(output):
        found: Array = _argmax(output.astype(np.float64) if output.dtype.kind == "V" else output)
        return found
    column = output if output.ndim == 1 else output[..., 0]
    if not _is_float(output):
        return column.astype(np.int64)
    numbers, known = column.astype(np.float64), source.astype(np.float64)
    known = known[np.isfinite(known)]
    limit = 0.5 if np.all((known >= 0) & (known <= 1)) else 0.0
    return np.where(np.isnan(numbers), NO_CLASS, numbers > limit)


def accuracy(output: Array, labels: Array, source: Array | None = None) -> float:
    """Share of rows whose class is right. source: that by which a single column is read, where it
    is not `output` itself."""
    found = classes_of(output, output if source is None else source)
    return float(np.mean(found.reshape(len(labels), -1)[:, 0] == labels))


def agreement(source: Array, result: Array, kind: Kind) -> float:
    """1 where both are the same: share of equal classes, or, of values, the coefficient of
    determination R2 of the result for the source."""
    if not np.all(np.isfinite(result.astype(np.float64))):
        return 0.0
    if kind == "classes":
        return float(np.mean(classes_of(source, source) == classes_of(result, source)))
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


def _uneven(before: Array) -> float:
    if not _has_columns(before) or before.size < LEAST_OF_COLUMN * before.shape[-1]:
        return 1.0
    columns = np.abs(before.reshape(-1, before.shape[-1]))
    sizes = np.max(np.where(np.isfinite(columns), columns, 0.0), axis=0)
    sizes = sizes[sizes > 0]
    return float(sizes.max() / sizes.min()) if len(sizes) else 1.0


def _has_columns(output: Array) -> bool:
    return output.ndim > 1 and output.shape[-1] > 1 and output.dtype.kind == "f"


def _is_single(output: Array) -> bool:
    return output.ndim == 1 or output.shape[-1] == 1


def _is_float(output: Array) -> bool:
    """bfloat16 is of the kind "V"."""
    return output.dtype.kind in "fV"


def _argmax(output: Array) -> Array:
    found: Array = np.argmax(np.nan_to_num(output, nan=-np.inf), axis=-1)
    if output.dtype.kind == "f":
        found[np.isnan(output).any(axis=-1)] = NO_CLASS
    return found
