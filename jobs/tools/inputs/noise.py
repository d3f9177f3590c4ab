"""Whether an array is noise from a random generator rather than data. Pure."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

LEAST_VALUES, MOST_VALUES = 2_000, 50_000
MOST_LOOKED_AT = 4_000_000
"""Values whose means are compared; more would say no more."""
KOLMOGOROV = 1.63
"""Of the Kolmogorov-Smirnov test at 1 %."""
CHI_SQUARE_SIGMAS = 4.0


def looks_random(array: Array) -> str:
    """The distribution that floats [rows, ...] were drawn from, independently; "" for data.

    Noise has at every position the same mean, and all its values together follow a uniform or a
    normal distribution. Data of thousands of values never does both.
    """
    if array.dtype.kind != "f" or array.size < LEAST_VALUES or len(array) < 2:
        return ""
    rows = max(2, MOST_LOOKED_AT // (array.size // len(array)))
    values = array[:rows].reshape(min(rows, len(array)), -1).astype(np.float64)
    spread = float(values.std())
    if not spread or not np.isfinite(spread) or not _equal_means(values, spread):
        return ""
    pooled = np.sort(values.ravel()[:MOST_VALUES])
    if _distance(pooled, (pooled - pooled[0]) / (pooled[-1] - pooled[0])) < KOLMOGOROV:
        return "uniform"
    normal = 0.5 * (1 + _erf((pooled - pooled.mean()) / (pooled.std() * math.sqrt(2))))
    return "normal" if _distance(pooled, normal) < KOLMOGOROV else ""


def _equal_means(values: Array, spread: float) -> bool:
    """Whether the means of the columns differ as little as those of independent draws."""
    rows, columns = values.shape
    if columns < 2:
        return True
    statistic = float(np.sum((values.mean(axis=0) - values.mean()) ** 2)) * rows / spread**2
    free = columns - 1
    return bool(abs(statistic - free) < CHI_SQUARE_SIGMAS * math.sqrt(2 * free))


def _distance(ordered: Array, distribution: Array) -> float:
    """Kolmogorov's statistic, times the root of the number of values."""
    count = len(ordered)
    steps = np.arange(1, count + 1) / count
    return float(np.max(np.abs(steps - distribution))) * math.sqrt(count)


def _erf(values: Array) -> Array:
    found: Array = np.vectorize(math.erf, otypes=[float])(values)
    return found
