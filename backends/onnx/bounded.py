"""Whether what a graph costs follows from the shapes of its inputs, whatever their values.

Of such a graph, executions that were short stay short, so they may run on the event loop's thread
(`schedulers.policy.inline`). Its inputs have fixed dims (`backends.fixed_inputs`), its operators
are of a list, and where an input of one says how large something becomes, that input is settled: a
constant of the graph, or made of constants and shapes alone. Read from the file's protobuf without
the package onnx, which the serving process does not import; weights are passed over.
"""

import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from backends.fixed_inputs import has_fixed_inputs
from repository.model import ModelConfig

MOST_NODES = 512
"""A graph of more is not short."""

MOST_FIELDS = 10_000
"""Of protobuf that are looked at in a file; one that has more is taken for a long one."""

ALLOWED = frozenset({
    # elementwise
    "Abs", "Acos", "Acosh", "Add", "And", "Asin", "Asinh", "Atan", "Atanh", "BitwiseAnd",
    "BitwiseNot", "BitwiseOr", "BitwiseXor", "Cast", "Ceil", "Clip", "Cos", "Cosh", "Div",
    "Equal", "Erf", "Exp", "Floor", "Greater", "GreaterOrEqual", "Identity", "IsInf", "IsNaN",
    "Less", "LessOrEqual", "Log", "Max", "Mean", "Min", "Mul", "Neg", "Not", "Or", "Reciprocal",
    "Round", "Sign", "Sin", "Sinh", "Sqrt", "Sub", "Sum", "Tan", "Tanh", "Where", "Xor",
    # activations
    "Celu", "Elu", "Gelu", "HardSigmoid", "HardSwish", "Hardmax", "LeakyRelu", "LogSoftmax",
    "Mish", "PRelu", "Relu", "Selu", "Sigmoid", "Softmax", "Softplus", "Softsign", "Swish",
    "ThresholdedRelu",
    # products, convolutions, pooling
    "Conv", "ConvInteger", "ConvTranspose", "Einsum", "Gemm", "MatMul", "MatMulInteger",
    "QLinearConv", "QLinearMatMul", "AveragePool", "GlobalAveragePool", "GlobalLpPool",
    "GlobalMaxPool", "LpPool", "MaxPool",
    # normalisation
    "BatchNormalization", "GroupNormalization", "InstanceNormalization", "LayerNormalization",
    "LpNormalization", "LRN", "MeanVarianceNormalization", "RMSNormalization",
    # shapes, indices, constants
    "ArgMax", "ArgMin", "Concat", "Constant", "DepthToSpace", "Flatten", "Gather",
    "GatherElements", "GatherND", "Shape", "Size", "SpaceToDepth", "Transpose",
    # quantisation
    "DequantizeLinear", "DynamicQuantizeLinear", "QuantizeLinear",
    # ai.onnx.ml
    "Binarizer", "Imputer", "LinearClassifier", "LinearRegressor", "Normalizer", "Scaler",
})  # fmt: skip
"""Operators whose work follows from the shapes of their inputs."""

SETTLED_INPUTS = {
    "ArrayFeatureExtractor": (1,), "ConstantOfShape": (0,), "CumSum": (1,), "Dropout": (1, 2),
    "Expand": (1,), "GRU": (4,), "LSTM": (4,), "OneHot": (1,), "Pad": (1, 3), "Pow": (1,),
    "RNN": (4,), "Range": (0, 1, 2), "Reshape": (1,), "Resize": (1, 2, 3), "Slice": (1, 2, 3, 4),
    "Split": (1,), "Squeeze": (1,), "Tile": (1,), "TopK": (1,), "Trilu": (1,), "Unsqueeze": (1,),
    "ReduceL1": (1,), "ReduceL2": (1,), "ReduceLogSum": (1,), "ReduceLogSumExp": (1,),
    "ReduceMax": (1,), "ReduceMean": (1,), "ReduceMin": (1,), "ReduceProd": (1,),
    "ReduceSum": (1,), "ReduceSumSquare": (1,),
}  # fmt: skip
"""Operators that are allowed where these inputs are settled, by their place: they say how large
the result is, or how much there is to do."""

DOMAINS = frozenset({"", "ai.onnx", "ai.onnx.ml"})
"""Whose operators these are."""

_SHAPES = frozenset({"Shape", "Size"})
_GRAPH, _FUNCTIONS = 7, 25  # of ModelProto
_NODES, _INITIALIZERS, _INPUTS = 1, 5, 11  # of GraphProto
_INPUT, _OUTPUT, _OP_TYPE, _DOMAIN = 1, 2, 4, 7  # of NodeProto
_VALUE_NAME, _TENSOR_NAME = 1, 8  # of ValueInfoProto, of TensorProto
_LENGTH_DELIMITED = 2
_FIXED_BYTES = {1: 8, 5: 4}


class _Node(NamedTuple):
    operator: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


class _GraphFile(mmap.mmap):
    """A file of which `fields` have been looked at."""

    fields = 0


def is_bounded(config: ModelConfig, path: Path) -> bool:
    """Of a model with this completed config and this graph; False where it cannot be told."""
    if not has_fixed_inputs(config):
        return False
    states = [state.input_name for state in config.sequence_batching.state]
    declared = {tensor.name for tensor in config.input} | set(states)
    for control in config.sequence_batching.control_input:
        declared.add(control.name)
    try:
        with path.open("rb") as file, _GraphFile(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _has_only_bounded(data, declared)
    except (OSError, ValueError, IndexError):
        return False


def _has_only_bounded(data: _GraphFile, declared: set[str]) -> bool:
    nodes: list[tuple[int, int]] = []
    constants: set[str] = set()
    inputs: set[str] = set()
    for number, begin, end in _fields(data, 0, len(data)):
        if number == _FUNCTIONS:
            return False
        if number != _GRAPH:
            continue
        for inner, start, stop in _fields(data, begin, end):
            if inner == _NODES:
                nodes.append((start, stop))
            elif inner == _INITIALIZERS:
                constants.add(_text(data, start, stop, _TENSOR_NAME))
            elif inner == _INPUTS:
                inputs.add(_text(data, start, stop, _VALUE_NAME))
    if len(nodes) > MOST_NODES or not inputs - constants <= declared:
        return False
    settled = constants - inputs  # a request may have another value for what is an input, too
    settled.add("")  # an optional input that is left out
    return all(_is_bounded_node(_node(data, *place), settled) for place in nodes)


def _is_bounded_node(node: _Node, settled: set[str]) -> bool:
    """Adds to `settled` what the node makes of settled inputs; nodes come in an order in which
    those that a node needs come before it."""
    to_settle = SETTLED_INPUTS.get(node.operator, () if node.operator in ALLOWED else None)
    if node.domain not in DOMAINS or to_settle is None:
        return False
    needed = (node.inputs[place] for place in to_settle if place < len(node.inputs))
    if not settled.issuperset(needed):
        return False
    if node.operator in _SHAPES or settled.issuperset(node.inputs):
        settled.update(node.outputs)
    return True


def _node(data: _GraphFile, begin: int, end: int) -> _Node:
    texts: dict[int, list[str]] = {_INPUT: [], _OUTPUT: [], _OP_TYPE: [], _DOMAIN: []}
    for number, start, stop in _fields(data, begin, end):
        if number in texts:
            texts[number].append(data[start:stop].decode())
    operator, domain = "".join(texts[_OP_TYPE]), "".join(texts[_DOMAIN])
    return _Node(operator, domain, tuple(texts[_INPUT]), tuple(texts[_OUTPUT]))


def _text(data: _GraphFile, begin: int, end: int, wanted: int) -> str:
    for number, start, stop in _fields(data, begin, end):
        if number == wanted:
            return data[start:stop].decode()
    return ""


def _fields(data: _GraphFile, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """The length-delimited fields of the message in `data[at:end]`: number, begin, end.

    Raises ValueError for what is no message or has too many, IndexError where it is cut short.
    """
    while at < end:
        data.fields += 1
        if data.fields > MOST_FIELDS:
            raise ValueError("too many fields")
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == _LENGTH_DELIMITED:
            length, at = _varint(data, at)
            if at + length > end:
                raise IndexError
            yield number, at, at + length
            at += length
        elif wire == 0:
            _, at = _varint(data, at)
        elif wire in _FIXED_BYTES:
            at += _FIXED_BYTES[wire]
        else:
            raise ValueError(f"wire type {wire}")


def _varint(data: _GraphFile, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number of more than ten bytes")
