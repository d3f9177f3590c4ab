"""Models with distinct weights, written for one run and deleted after it."""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

WIDTH = 1024
LAYER_BYTES = WIDTH * WIDTH * 4


def name_of(number: int) -> str:
    return f"net{number:03d}"


def write_models(root: Path, count: int, megabytes: int) -> int:
    """`count` chains of matrix products, FP32 [1024] in batches, of so many MB of weights each;
    the bytes of one file."""
    layers = round(megabytes * 1e6 / LAYER_BYTES)
    draw = np.random.default_rng(7)
    base = draw.standard_normal((layers, WIDTH, WIDTH), dtype=np.float32) / np.float32(32)
    size = 0
    for number in range(count):
        folder = root / name_of(number) / "1"
        folder.mkdir(parents=True)
        path = folder / "model.onnx"
        path.write_bytes(_model(base * np.float32(1 + number / 1000)).SerializeToString())
        size = path.stat().st_size
    return size


def _model(weights: "np.ndarray[tuple[int, ...], np.dtype[np.float32]]") -> onnx.ModelProto:
    nodes, before = [], "X"
    for layer in range(len(weights)):
        last = layer == len(weights) - 1
        after = "Y" if last else f"after{layer}"
        nodes.append(helper.make_node("MatMul", [before, f"w{layer}"], [f"product{layer}"]))
        nodes.append(helper.make_node("Relu", [f"product{layer}"], [after]))
        before = after
    tensors = [numpy_helper.from_array(one, f"w{layer}") for layer, one in enumerate(weights)]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", WIDTH]) for name in "XY"
    ]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
