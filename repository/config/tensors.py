"""The data types of the v2 protocol, their numpy forms and their spelling in a model's config.

Source of the names: Triton's `model_config.proto` (`TYPE_*`) and the KServe v2 protocol. BF16 is
`ml_dtypes.bfloat16`; BYTES is an object array whose elements are `bytes`.
"""

from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from tritonclient.grpc import model_config_pb2 as pb

Array = np.ndarray[Any, Any]


class DataType(NamedTuple):
    """One data type: wire name ("FP32"), config enum value, numpy dtype, bytes per element.

    `itemsize` is 0 for BYTES, whose elements differ in size.
    """

    name: str
    config: int
    dtype: np.dtype[Any]
    itemsize: int


def _row(name: str, config: int, kind: Any) -> DataType:
    dtype = np.dtype(kind)
    return DataType(name, config, dtype, 0 if dtype.hasobject else dtype.itemsize)


DATA_TYPES: tuple[DataType, ...] = (
    _row("BOOL", pb.TYPE_BOOL, np.bool_),
    _row("UINT8", pb.TYPE_UINT8, np.uint8),
    _row("UINT16", pb.TYPE_UINT16, np.uint16),
    _row("UINT32", pb.TYPE_UINT32, np.uint32),
    _row("UINT64", pb.TYPE_UINT64, np.uint64),
    _row("INT8", pb.TYPE_INT8, np.int8),
    _row("INT16", pb.TYPE_INT16, np.int16),
    _row("INT32", pb.TYPE_INT32, np.int32),
    _row("INT64", pb.TYPE_INT64, np.int64),
    _row("FP16", pb.TYPE_FP16, np.float16),
    _row("FP32", pb.TYPE_FP32, np.float32),
    _row("FP64", pb.TYPE_FP64, np.float64),
    _row("BYTES", pb.TYPE_STRING, np.object_),
    _row("BF16", pb.TYPE_BF16, ml_dtypes.bfloat16),
)

BY_NAME: dict[str, DataType] = {row.name: row for row in DATA_TYPES}
BY_CONFIG: dict[int, DataType] = {row.config: row for row in DATA_TYPES}
BY_DTYPE: dict[np.dtype[Any], DataType] = {row.dtype: row for row in DATA_TYPES}

ELEMENT_BYTES = 41
"""What a BYTES element costs beside its text and its place in the array."""


def held_bytes(array: Array) -> int:
    """The memory that a tensor takes, with its texts."""
    if not array.dtype.hasobject:
        return array.nbytes
    return array.nbytes + sum(ELEMENT_BYTES + len(text) for text in array.ravel().tolist())
