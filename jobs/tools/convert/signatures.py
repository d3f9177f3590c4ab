"""Configs and networks describe tensors; from one to the other. Pure."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from ml_dtypes import bfloat16
from tritonclient.grpc import model_config_pb2 as pb

from jobs.tools.networks.tensors import NetworkTensor
from jobs.tools.work import refuse

_DTYPES: dict[int, Any] = {
    pb.TYPE_BOOL: np.bool_, pb.TYPE_UINT8: np.uint8, pb.TYPE_UINT16: np.uint16,
    pb.TYPE_UINT32: np.uint32, pb.TYPE_UINT64: np.uint64, pb.TYPE_INT8: np.int8,
    pb.TYPE_INT16: np.int16, pb.TYPE_INT32: np.int32, pb.TYPE_INT64: np.int64,
    pb.TYPE_FP16: np.float16, pb.TYPE_FP32: np.float32, pb.TYPE_FP64: np.float64,
    pb.TYPE_BF16: bfloat16, pb.TYPE_STRING: np.object_,
}  # fmt: skip
_TYPES = {np.dtype(dtype): code for code, dtype in _DTYPES.items()}


def config_tensors(tensors: Any, batched: bool) -> list[NetworkTensor]:
    """Inputs or outputs of a config as networks have them: rows in front where it batches."""
    return [_tensor(one, batched) for one in tensors]


def require_inputs(config: pb.ModelConfig, what: str) -> list[NetworkTensor]:
    """The inputs of a config for a file that does not describe them. Refuses where none are."""
    if not config.input or not config.output:
        refuse(f"{what} does not say what its inputs are; config.pbtxt must list input and output")
    return config_tensors(config.input, config.max_batch_size > 0)


def write_signature(
    config: pb.ModelConfig, inputs: Sequence[NetworkTensor], outputs: Sequence[NetworkTensor]
) -> None:
    """Replace a config's inputs and outputs by those of a network that batches."""
    for field, tensors in (("input", inputs), ("output", outputs)):
        config.ClearField(field)
        for one in tensors:
            made = getattr(config, field).add()
            made.name, made.data_type = one.name, _TYPES[np.dtype(one.dtype)]
            made.dims.extend(size or -1 for size in one.shape[1:])
            if len(one.shape) == 1:
                made.dims.append(1)
                made.reshape.SetInParent()


def _tensor(tensor: Any, batched: bool) -> NetworkTensor:
    if tensor.data_type not in _DTYPES:
        refuse(
            f"config.pbtxt gives '{tensor.name}' the type "
            f"{pb.DataType.Name(tensor.data_type)}; it must be a type of numbers or TYPE_STRING"
        )
    dims = tensor.reshape.shape if tensor.HasField("reshape") else tensor.dims
    shape = tuple(size if size > 0 else None for size in dims)
    return NetworkTensor(
        tensor.name, _DTYPES[tensor.data_type], (None, *shape) if batched else shape
    )
