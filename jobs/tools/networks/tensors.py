"""Tensors of a network as its file describes them, and rows of them. Pure."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from numpy.typing import NDArray

Array = NDArray[Any]
Rows = Mapping[str, Array]
"""Arrays by the name of the input or output, all with the same number of rows."""

RowRunner = Callable[[Rows], Rows]
"""A network in whatever runtime: inputs by name to outputs by name."""


class NetworkTensor(NamedTuple):
    """A tensor of a network; a dimension is None where it is open."""

    name: str
    dtype: Any
    shape: tuple[int | None, ...]
