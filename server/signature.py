"""A model's inputs and outputs, compiled once from its completed config for fast checking."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod

import numpy as np

from repository.config.body_rules import body_inputs
from repository.config.tensors import BY_CONFIG
from repository.model import ModelConfig

RAGGED = frozenset({"python", "identity", "onnxruntime", "pytorch"})
"""Backends where requests of a batch may differ in shape; the others stack rows."""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One input or output: `dims` as configured (no batch dimension, -1 for any).

    `full_dims` is what a request's shape is held against: `dims` with a leading -1 when the model
    batches. `inner` is what the runtime sees behind the batch dimension (config `reshape`), or
    None when it sees `dims`. `labels`: the lines of an output's label file, one per element.
    """

    name: str
    datatype: str
    dtype: np.dtype[np.generic]
    itemsize: int
    dims: tuple[int, ...]
    full_dims: tuple[int, ...]
    fixed: tuple[int, ...] | None
    row_bytes: int
    inner: tuple[int, ...] | None
    optional: bool = False
    ragged: bool = False
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Signature:
    """What a model accepts and answers. `max_batch` is 0 when it has no batch dimension.

    `bodies`: the input that a whole REST body is, by its kind ("image", "text").
    """

    model: str
    version: int
    max_batch: int
    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, TensorSpec]
    required: frozenset[str]
    decoupled: bool
    bodies: Mapping[str, TensorSpec] = field(default_factory=dict)


def compile_signature(
    config: ModelConfig, version: int, labels: Mapping[str, tuple[str, ...]] | None = None
) -> Signature:
    """Compile a completed config (every tensor has a name, a type and dims).

    `labels`: output → the lines of its label file.
    """
    batched = config.max_batch_size > 0
    ragged = config.backend in RAGGED
    inputs = {tensor.name: _compile(tensor, batched, ragged=ragged) for tensor in config.input}
    outputs = {
        tensor.name: _compile(tensor, batched, (labels or {}).get(tensor.name, ()))
        for tensor in config.output
    }
    return Signature(
        model=config.name,
        version=version,
        max_batch=config.max_batch_size,
        inputs=inputs,
        outputs=outputs,
        required=frozenset(name for name, spec in inputs.items() if not spec.optional),
        decoupled=config.model_transaction_policy.decoupled,
        bodies={kind: inputs[name] for kind, name in body_inputs(config) if name in inputs},
    )


def _compile(
    tensor: object, batched: bool, labels: tuple[str, ...] = (), ragged: bool = False
) -> TensorSpec:
    from tritonclient.grpc import model_config_pb2 as pb

    assert isinstance(tensor, pb.ModelInput | pb.ModelOutput)
    data_type = BY_CONFIG[tensor.data_type]
    dims = tuple(tensor.dims)
    fixed = None if -1 in dims else dims
    is_input = isinstance(tensor, pb.ModelInput)
    return TensorSpec(
        name=tensor.name,
        datatype=data_type.name,
        dtype=data_type.dtype,
        itemsize=data_type.itemsize,
        dims=dims,
        full_dims=(-1, *dims) if batched else dims,
        fixed=fixed,
        row_bytes=data_type.itemsize * prod(dims) if fixed is not None else 0,
        inner=tuple(tensor.reshape.shape) if tensor.HasField("reshape") else None,
        optional=is_input and tensor.optional,
        ragged=is_input and ragged and tensor.allow_ragged_batch,
        labels=labels,
    )
