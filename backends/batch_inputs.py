"""`batch_input`: what a model is told of the shapes of the requests that share its execution.

Source of the kinds: Triton's `backend_input_collector.cc`. Pure.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from math import prod
from typing import NamedTuple

import numpy as np
from tritonclient.grpc import model_config_pb2 as pb

from backends.reshape import input_changes, reshape
from backends.seam import Batch, Member
from repository.config.tensors import BY_CONFIG, Array
from repository.model import ModelConfig

Shape = tuple[int, ...]


class BatchInputRow(NamedTuple):
    """One `batch_input`: the inputs it fills, by what kind, from the shapes of which input."""

    targets: tuple[str, ...]
    kind: int
    dtype: "np.dtype[np.generic]"
    source: str


class BatchInputs:
    """The values of a config's `batch_input` for a batch."""

    def __init__(self, config: ModelConfig) -> None:
        self.rows = tuple(
            BatchInputRow(
                tuple(row.target_name),
                row.kind,
                BY_CONFIG[row.data_type].dtype,
                row.source_input[0],
            )
            for row in config.batch_input
        )
        self._changes = input_changes(config)

    def values(self, batch: Batch) -> dict[str, Array]:
        """An array per target name; their shapes depend on the batch alone."""
        found: dict[str, Array] = {}
        for row in self.rows:
            shapes = [self.shape_of(member, row.source, batch.batched) for member in batch.members]
            value = _OF_KIND[row.kind](shapes).astype(row.dtype)
            found.update(dict.fromkeys(row.targets, value))
        return found

    def shape_of(self, member: Member, name: str, batched: bool) -> Shape:
        """The shape, rows included, in which the model means the member's input."""
        array = member.inputs[name]
        if name in self._changes:
            array = reshape(array, *self._changes[name], batched)
        shape: Shape = array.shape
        return shape


def _element_counts(shapes: Sequence[Shape]) -> Array:
    return np.array([prod(shape) for shape in shapes])


def _accumulated(shapes: Sequence[Shape]) -> Array:
    return np.array(list(accumulate(prod(shape) for shape in shapes)))


def _accumulated_with_zero(shapes: Sequence[Shape]) -> Array:
    return np.array(list(accumulate((prod(shape) for shape in shapes), initial=0)))


def _as_long_as_the_largest(shapes: Sequence[Shape]) -> Array:
    """Only its shape says something; Triton leaves the elements as they are, here they are 0."""
    return np.zeros(max(prod(shape) for shape in shapes))


def _item_shapes(shapes: Sequence[Shape]) -> Array:
    """A row for every row of every request: its shape without the batch."""
    rows = [shape[1:] for shape in shapes for _ in range(shape[0])]
    return np.array(rows).reshape(len(rows), len(shapes[0]) - 1)


_OF_KIND: Mapping[int, Callable[[Sequence[Shape]], Array]] = {
    pb.BatchInput.BATCH_ELEMENT_COUNT: _element_counts,
    pb.BatchInput.BATCH_ACCUMULATED_ELEMENT_COUNT: _accumulated,
    pb.BatchInput.BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO: _accumulated_with_zero,
    pb.BatchInput.BATCH_MAX_ELEMENT_COUNT_AS_SHAPE: _as_long_as_the_largest,
    pb.BatchInput.BATCH_ITEM_SHAPE: _item_shapes,
    pb.BatchInput.BATCH_ITEM_SHAPE_FLATTEN: lambda shapes: _item_shapes(shapes).ravel(),
}
