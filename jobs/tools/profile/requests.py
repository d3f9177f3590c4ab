"""The requests that a profile sends: rows of the data file or made up, in the binary protocol."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tritonclient.grpc import model_config_pb2 as pb

from jobs.tools.inputs.data_file import read_arrays
from jobs.tools.work import refuse

DTYPES: dict[int, tuple[str, Any]] = {
    pb.TYPE_BOOL: ("BOOL", np.bool_), pb.TYPE_UINT8: ("UINT8", np.uint8),
    pb.TYPE_UINT16: ("UINT16", np.uint16), pb.TYPE_UINT32: ("UINT32", np.uint32),
    pb.TYPE_UINT64: ("UINT64", np.uint64), pb.TYPE_INT8: ("INT8", np.int8),
    pb.TYPE_INT16: ("INT16", np.int16), pb.TYPE_INT32: ("INT32", np.int32),
    pb.TYPE_INT64: ("INT64", np.int64), pb.TYPE_FP16: ("FP16", np.float16),
    pb.TYPE_FP32: ("FP32", np.float32), pb.TYPE_FP64: ("FP64", np.float64),
}  # fmt: skip
DISTINCT = 16
"""Requests that are sent in turn, so that no cache answers for the model."""


def make_requests(config: pb.ModelConfig, rows: int, data: str, seed: int) -> list[bytes]:
    """Complete HTTP requests. Refuses inputs that neither the file nor the config determine."""
    given = read_arrays(Path(data)) if data else None
    draw = np.random.default_rng(seed)
    return [
        encode_request(config, [_array(one, config, rows, given, at, draw) for one in config.input])
        for at in range(DISTINCT)
    ]


def encode_request(config: pb.ModelConfig, arrays: list[NDArray[Any]]) -> bytes:
    """A complete HTTP request with an array for each input of the config."""
    bodies = [np.ascontiguousarray(one).tobytes() for one in arrays]
    inputs = [
        {
            "name": tensor.name,
            "datatype": DTYPES[tensor.data_type][0],
            "shape": list(array.shape),
            "parameters": {"binary_data_size": len(body)},
        }
        for tensor, array, body in zip(config.input, arrays, bodies, strict=True)
    ]
    head = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}}).encode()
    body = head + b"".join(bodies)
    return (
        f"POST /v2/models/{config.name}/infer HTTP/1.1\r\nHost: profile\r\n"
        f"Inference-Header-Content-Length: {len(head)}\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode() + body


def dtype_of(tensor: Any) -> Any:
    """Of an input, as numpy has it. Refuses types that are not sent."""
    if tensor.data_type not in DTYPES:
        refuse(f"input '{tensor.name}' has a type that a profile does not send, such as text")
    return DTYPES[tensor.data_type][1]


def _array(
    tensor: Any,
    config: pb.ModelConfig,
    rows: int,
    given: dict[str, NDArray[Any]] | None,
    at: int,
    draw: np.random.Generator,
) -> NDArray[Any]:
    dtype = dtype_of(tensor)
    if given is not None:
        found = _row_of(tensor.name, rows, given, at)
        if not np.can_cast(found.dtype, dtype, "same_kind"):
            refuse(
                f"the data's array '{tensor.name}' is {found.dtype}; the input takes "
                f"{np.dtype(dtype).name}"
            )
        return found.astype(dtype)
    if any(size < 0 for size in tensor.dims):
        refuse(
            f"input '{tensor.name}' has dims {list(tensor.dims)}: name a data file, because a "
            "profile cannot guess the size of an open dimension"
        )
    shape = [*([rows] if config.max_batch_size else []), *tensor.dims]
    if np.issubdtype(dtype, np.floating):
        return draw.normal(size=shape).astype(dtype)
    return np.zeros(shape, dtype)


def _row_of(name: str, rows: int, given: dict[str, NDArray[Any]], at: int) -> NDArray[Any]:
    if name not in given:
        refuse(f"the data file has no array '{name}'; it has {', '.join(given)}")
    array = given[name]
    there = len(array) if array.ndim else 0
    if there < rows:
        refuse(
            f"the data's array '{name}' has {there} rows, and a request has {rows}; give more "
            "rows, or a smaller 'rows'"
        )
    first = at * rows % (there - rows + 1)
    return array[first : first + rows]
