"""Whether a model's answer looks like one: numbers that are numbers, and something in it. Pure."""

from collections.abc import Mapping
from math import isfinite

import numpy as np

from repository.config.tensors import Array

MOST_LOOKED_AT = 4_096
"""Elements of each output: looking is done beside answering, on the same loop."""


def not_a_number(outputs: Mapping[str, Array]) -> bool:
    """Whether an output has a NaN or an infinity among its first elements."""
    for array in outputs.values():
        if array.dtype.kind == "f":
            some = array if array.size <= MOST_LOOKED_AT else array.reshape(-1)[:MOST_LOOKED_AT]
            if not _surely_finite(some) and not np.isfinite(some).all():
                return True
    return False


def _surely_finite(array: Array) -> bool:
    """In a third of the time of asking each element; false as well where squares overflow, as the
    large ones of half precision soon do."""
    return array.itemsize > 2 and isfinite(np.vdot(array, array))


def empty(outputs: Mapping[str, Array]) -> bool:
    """Whether there is not a single element in it."""
    return not any(array.size for array in outputs.values())
