"""Writes .tflite files with LiteRT's own schema; no TensorFlow is needed."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema
from numpy.typing import NDArray

Array = NDArray[Any]


class TfliteTensor(NamedTuple):
    """A tensor of the graph. `shape`: -1 in front where the number of rows is open."""

    name: str
    shape: Sequence[int]
    dtype: type[Any] = np.float32
    value: Array | None = None


class TfliteOperator(NamedTuple):
    """A builtin operator: its code, the tensors' names, and its options."""

    code: int
    inputs: Sequence[str]
    outputs: Sequence[str]
    options: Any = None
    options_type: int = 0


_TYPES = {
    np.float32: schema.TensorType.FLOAT32,
    np.int64: schema.TensorType.INT64,
    np.int32: schema.TensorType.INT32,
}


def save_tflite(
    path: Path,
    tensors: Sequence[TfliteTensor],
    operators: Sequence[TfliteOperator],
    inputs: Sequence[str],
    outputs: Sequence[str],
    signature: str = "serving_default",
) -> None:
    """Write a graph of one subgraph; `signature` "" for none, as older converters wrote them."""
    index = {tensor.name: at for at, tensor in enumerate(tensors)}
    model = schema.ModelT()
    model.version = 3
    model.buffers = [schema.BufferT()]
    model.operatorCodes = []
    graph = schema.SubGraphT()
    graph.name = b"main"
    graph.tensors = [_tensor(model, one) for one in tensors]
    graph.inputs = [index[name] for name in inputs]
    graph.outputs = [index[name] for name in outputs]
    graph.operators = [_operator(model, one, index) for one in operators]
    model.subgraphs = [graph]
    if signature:
        model.signatureDefs = [_signature(signature, index, inputs, outputs)]
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
    path.write_bytes(bytes(builder.Output()))


def _tensor(model: Any, tensor: TfliteTensor) -> Any:
    made = schema.TensorT()
    made.name = tensor.name.encode()
    made.type = _TYPES[tensor.dtype]
    made.shape = [abs(size) for size in tensor.shape]
    made.shapeSignature = list(tensor.shape)
    made.buffer = 0
    if tensor.value is not None:
        buffer = schema.BufferT()
        buffer.data = np.frombuffer(tensor.value.astype(tensor.dtype).tobytes(), np.uint8)
        model.buffers.append(buffer)
        made.buffer = len(model.buffers) - 1
    return made


def _operator(model: Any, operator: TfliteOperator, index: dict[str, int]) -> Any:
    code = schema.OperatorCodeT()
    code.builtinCode = code.deprecatedBuiltinCode = operator.code
    code.version = 1
    model.operatorCodes.append(code)
    made = schema.OperatorT()
    made.opcodeIndex = len(model.operatorCodes) - 1
    made.inputs = [index[name] for name in operator.inputs]
    made.outputs = [index[name] for name in operator.outputs]
    made.builtinOptions, made.builtinOptionsType = operator.options, operator.options_type
    return made


def _signature(
    name: str, index: dict[str, int], inputs: Sequence[str], outputs: Sequence[str]
) -> Any:
    made = schema.SignatureDefT()
    made.signatureKey = name.encode()
    made.subgraphIndex = 0
    made.inputs, made.outputs = (
        [_mapping(one, index[one]) for one in names] for names in (inputs, outputs)
    )
    return made


def _mapping(name: str, at: int) -> Any:
    made = schema.TensorMapT()
    made.name, made.tensorIndex = name.encode(), at
    return made
