"""Weights stored in 16 bits and cast to float32, which runtimes do once, when they load. Pure."""

from typing import Literal, NamedTuple

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

HalfType = Literal["fp16", "bf16"]

LEAST_ELEMENTS = 256
"""Smaller weights stay: a Cast node for each would cost more than it saves."""

_TYPES = {
    "fp16": (TensorProto.FLOAT16, np.float16),
    "bf16": (TensorProto.BFLOAT16, ml_dtypes.bfloat16),
}
LEAST_OPSET = 13
"""Cast knows bfloat16 from here on."""


class HalvedWeights(NamedTuple):
    """The network, and how many weights were stored in half and how many overflow it and stay."""

    network: onnx.ModelProto
    halved: int
    too_large: int


def halve_weights(network: onnx.ModelProto, to: HalfType) -> HalvedWeights:
    """A copy of the network with its larger float weights in 16 bits."""
    made = onnx.ModelProto()
    made.CopyFrom(network)
    code, dtype = _TYPES[to]
    casts, halved, too_large = [], 0, 0
    for weight in made.graph.initializer:
        array = numpy_helper.to_array(weight)
        if weight.data_type != TensorProto.FLOAT or array.size < LEAST_ELEMENTS:
            continue
        with np.errstate(over="ignore"):
            half = array.astype(dtype)
        if not np.all(np.isfinite(half.astype(np.float32))):
            too_large += 1
            continue
        name = weight.name
        weight.CopyFrom(_tensor(half, f"{name}_{to}", code))
        casts.append(helper.make_node("Cast", [weight.name], [name], f"{name}_cast", to=1))
        halved += 1
    _put_in_front(made.graph, casts)
    return HalvedWeights(made, halved, too_large)


def opset_of(network: onnx.ModelProto) -> int:
    """The version of ONNX's own operators."""
    own = (one.version for one in network.opset_import if one.domain in ("", "ai.onnx"))
    return max(own, default=0)


def _tensor(array: np.ndarray, name: str, code: int) -> onnx.TensorProto:
    tensor = TensorProto(name=name, data_type=code, dims=array.shape)
    tensor.raw_data = array.tobytes()
    return tensor


def _put_in_front(graph: onnx.GraphProto, casts: list[onnx.NodeProto]) -> None:
    nodes = [*casts, *graph.node]
    del graph.node[:]
    graph.node.extend(nodes)
    # Old files list weights among the inputs; one that is halved is none any more.
    halved = {node.output[0] for node in casts}
    kept = [one for one in graph.input if one.name not in halved]
    del graph.input[:]
    graph.input.extend(kept)
