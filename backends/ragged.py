"""Ragged batches: requests of different shapes in one execution of an array runtime.

Inputs with `allow_ragged_batch` are flattened and strung together, `batch_input` says where each
request begins, and `batch_output` cuts an output up again. Source: Triton's
`backend_input_collector.cc` and `backend_output_responder.cc`.
"""

from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from math import prod

import numpy as np

from backends.batch_inputs import BatchInputs, Shape
from backends.errors import FaultyModel
from backends.reshape import input_changes, reshaped
from backends.seam import Batch, Member, Result, Tensors
from backends.stacked import StackedInstance
from repository.config.tensors import Array
from repository.model import ModelConfig, ModelVersion


def is_ragged(config: ModelConfig) -> bool:
    """Whether a batch of this model is more than its rows, one below the other."""
    ragged = any(tensor.allow_ragged_batch for tensor in config.input)
    return bool(ragged or config.batch_input or config.batch_output)


class RaggedInstance(StackedInstance):
    """A `StackedInstance` whose members' inputs may differ in shape; chosen when a model loads."""

    def __init__(self, version: ModelVersion, device: str, cores: int) -> None:
        super().__init__(version, device, cores)
        config = version.config
        self._batch_inputs = BatchInputs(config)
        self._ragged = frozenset(one.name for one in config.input if one.allow_ragged_batch)
        changes = input_changes(config)
        self._inner = {name: changes[name] for name in changes if name not in self._ragged}
        self._sources = {
            target: row.source_input[0] for row in config.batch_output for target in row.target_name
        }
        self._dims = {
            one.name: tuple(one.reshape.shape if one.HasField("reshape") else one.dims)
            for one in config.output
            if one.name in self._sources
        }

    def _stack(self, batch: Batch) -> Tensors:
        """One array per input: flat where it is ragged, and those of `batch_input` beside them."""
        inputs: dict[str, Array] = {}
        for name in batch.members[0].inputs:
            arrays = [member.inputs[name] for member in batch.members]
            if name in self._ragged:
                arrays = [array.reshape(-1) for array in arrays]
            inputs[name] = np.concatenate(arrays) if len(arrays) > 1 else arrays[0]
        if self._inner:
            inputs = reshaped(inputs, self._inner, batch.batched)
        inputs.update(self._batch_inputs.values(batch))
        return inputs

    def _split(self, batch: Batch, outputs: Tensors) -> Sequence[Result]:
        rows = {name: array for name, array in outputs.items() if name not in self._sources}
        if len(rows) == len(outputs):
            return super()._split(batch, outputs)
        parts = self._scatter(batch, {name: outputs[name] for name in outputs if name not in rows})
        if not rows:
            return parts
        found = super()._split(batch, rows)
        return [
            row if isinstance(row, Exception) else _in_order(outputs, {**row, **part})
            for row, part in zip(found, parts, strict=True)
        ]

    def _scatter(self, batch: Batch, outputs: Tensors) -> list[Tensors]:
        """Each member's part of the outputs of `batch_output`, as views.

        Raises FaultyModel where an output has not as many elements as the shapes take.
        """
        self._check_types(outputs)
        parts: list[dict[str, Array]] = [{} for _ in batch.members]
        for name, array in outputs.items():
            shapes = [self._output_shape(batch, member, name) for member in batch.members]
            bounds = list(accumulate((prod(shape) for shape in shapes), initial=0))
            if bounds[-1] != array.size:
                raise FaultyModel(
                    f"{self._where} is faulty: output '{name}' was returned with {array.size} "
                    f"elements, but the shapes of input '{self._sources[name]}' by which "
                    f"batch_output scatters it take {bounds[-1]}"
                )
            flat = array.reshape(-1)
            for part, shape, (start, stop) in zip(parts, shapes, pairwise(bounds), strict=True):
                part[name] = flat[start:stop].reshape(shape)
        return [self._reshape_outputs(batch, part) for part in parts]

    def _output_shape(self, batch: Batch, member: Member, name: str) -> Shape:
        """The output's dims behind the member's rows, each -1 of them as the source input has that
        dimension."""
        source = self._batch_inputs.shape_of(member, self._sources[name], batch.batched)
        lead, inner = (source[:1], source[1:]) if batch.batched else ((), source)
        dims = enumerate(self._dims[name])
        return lead + tuple(inner[at] if dim == -1 else dim for at, dim in dims)


def _in_order(names: Iterable[str], tensors: Tensors) -> Tensors:
    return {name: tensors[name] for name in names if name in tensors}
