"""A tensor as it is kept of a sampled request: its shape and what it is like, not what it says.

Pure. Bounded whatever the tensor's size: no more than LOOKED_AT elements are looked at.
"""

from typing import Any

import numpy as np

from backends.seam import Tensors
from repository.config.tensors import BY_DTYPE, Array

LOOKED_AT = 4096
MOST_TENSORS = 32
MOST_VALUES = 64
LONGEST_BYTES = 200
"""Of one element of BYTES that is kept."""

TOO_FEW = 8
"""Fewer elements are not summed up: least and most would be the values themselves."""


def summary_of(tensors: Tensors, values: bool) -> list[dict[str, Any]]:
    """What is kept of them; with `values` their first elements, too."""
    return [_tensor(name, one, values) for name, one in list(tensors.items())[:MOST_TENSORS]]


def _tensor(name: str, array: Array, values: bool) -> dict[str, Any]:
    text = array.dtype == np.object_
    found: dict[str, Any] = {
        "name": name[:255],
        "datatype": "BYTES" if text else _datatype(array),
        "shape": list(array.shape),
        "size_bytes": _size(array) if text else int(array.nbytes),
        "about": _about(array) if array.size >= TOO_FEW else None,
    }
    if values:
        found["values"] = [_plain(one) for one in array.flat[:MOST_VALUES].tolist()]
        found["more"] = max(0, int(array.size) - MOST_VALUES)
    return found


def _datatype(array: Array) -> str:
    datatype = BY_DTYPE.get(array.dtype)
    return datatype.name if datatype is not None else str(array.dtype)


def _size(array: Array) -> int:
    """Of BYTES: the elements looked at, and as much for each of the others."""
    looked = array.flat[:LOOKED_AT].tolist()
    return sum(map(_length, looked)) * int(array.size) // len(looked) if looked else 0


def _about(array: Array) -> dict[str, Any]:
    """Statistics of the first LOOKED_AT elements; `of` says how many that were."""
    looked = array.flat[:LOOKED_AT]
    if array.dtype == np.object_:
        sizes = [_length(one) for one in looked.tolist()]
        return {"of": len(sizes), "shortest_bytes": min(sizes), "longest_bytes": max(sizes)}
    numbers = np.asarray(looked, np.float64)
    fine = numbers[np.isfinite(numbers)]
    found: dict[str, Any] = {"of": len(numbers), "not_finite": len(numbers) - len(fine)}
    if len(fine):
        least, most, mean = float(fine.min()), float(fine.max()), float(fine.mean())
        found |= {"least": least, "most": most, "mean": mean}
    return found


def _length(element: Any) -> int:
    return len(element) if isinstance(element, (bytes, str)) else 0


def _plain(element: Any) -> Any:
    if isinstance(element, bytes):
        return element[:LONGEST_BYTES].decode("utf-8", "backslashreplace")
    return element if isinstance(element, (bool, int, float)) else str(element)[:LONGEST_BYTES]
