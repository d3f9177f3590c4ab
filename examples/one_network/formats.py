"""A writer of the network for each runtime: `WRITERS[backend](folder)`.

Only ONNX, OpenVINO and PyTorch have an exporter that this environment holds; the others' formats
are written layer by layer, which also shows what they are made of.
"""

import struct
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from examples.one_network.network import (
    CHANNELS,
    CLASSES,
    FLAT,
    INPUT,
    OUTPUT,
    SIZE,
    Layer,
    layers_of,
    network,
)
from examples.onnx_file import export

if TYPE_CHECKING:
    from examples.one_network.tflite_file import TfliteOperator, TfliteTensor


def write_onnx(folder: Path) -> None:
    sample = torch.zeros(2, CHANNELS[0], SIZE, SIZE)
    export(network(), sample, folder / "model.onnx", (INPUT, OUTPUT))


def write_openvino(folder: Path) -> None:
    import openvino

    write_onnx(folder)
    model = openvino.Core().read_model(folder / "model.onnx")
    # Half precision is its default; the answers would differ.
    openvino.save_model(model, folder / "model.xml", compress_to_fp16=False)
    (folder / "model.onnx").unlink()


class _Named(torch.nn.Module):
    """Names the output: an exported program answers a dict by its keys."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = network()

    def forward(self, IMAGE: torch.Tensor) -> dict[str, torch.Tensor]:
        return {OUTPUT: self.inner(IMAGE)}


def write_pytorch(folder: Path) -> None:
    rows = torch.export.Dim("rows", min=1, max=64)
    program = torch.export.export(
        _Named().eval(),
        (torch.zeros(2, CHANNELS[0], SIZE, SIZE),),
        dynamic_shapes={INPUT: {0: rows}},
    )
    torch.export.save(program, folder / "model.pt2")


def write_litert(folder: Path) -> None:
    """Channels last, as LiteRT's operators want them, between two transpositions."""
    from ai_edge_litert import schema_py_generated as schema

    from examples.one_network.tflite_file import TfliteOperator, TfliteTensor, save_tflite

    code, kind = schema.BuiltinOperator, schema.BuiltinOptions
    tensors = [
        TfliteTensor(INPUT, (-1, CHANNELS[0], SIZE, SIZE)),
        TfliteTensor("to_last", (4,), np.int32, np.array([0, 2, 3, 1])),
        TfliteTensor("image", (-1, SIZE, SIZE, CHANNELS[0])),
    ]
    turn = schema.TransposeOptionsT(), kind.TransposeOptions
    operators = [TfliteOperator(code.TRANSPOSE, (INPUT, "to_last"), ("image",), *turn)]
    *convolutions, classifier = layers_of(network())
    before, size = "image", SIZE
    for at, layer in enumerate(convolutions):
        of_layer, steps = _litert_convolution(at, layer, before, size)
        tensors += of_layer
        operators += steps
        before, size = of_layer[-1].name, size // 2
    tensors += [
        TfliteTensor("to_first", (4,), np.int32, np.array([0, 3, 1, 2])),
        TfliteTensor("planes", (-1, CHANNELS[-1], size, size)),
        TfliteTensor("shape", (2,), np.int32, np.array([-1, FLAT])),
        TfliteTensor("flat", (-1, FLAT)),
        TfliteTensor("weight", (CLASSES, FLAT), value=classifier.weight),
        TfliteTensor("bias", (CLASSES,), value=classifier.bias),
        TfliteTensor(OUTPUT, (-1, CLASSES)),
    ]
    flatten = schema.ReshapeOptionsT(), kind.ReshapeOptions
    connect = schema.FullyConnectedOptionsT(), kind.FullyConnectedOptions
    operators += [
        TfliteOperator(code.TRANSPOSE, (before, "to_first"), ("planes",), *turn),
        TfliteOperator(code.RESHAPE, ("planes", "shape"), ("flat",), *flatten),
        TfliteOperator(code.FULLY_CONNECTED, ("flat", "weight", "bias"), (OUTPUT,), *connect),
    ]
    save_tflite(folder / "model.tflite", tensors, operators, [INPUT], [OUTPUT])


def _litert_convolution(
    at: int, layer: Layer, before: str, size: int
) -> tuple[list["TfliteTensor"], list["TfliteOperator"]]:
    """The tensors and operators of layer `at`, a convolution with ReLU and a pooling of two by two
    over `before`, which is `size` high and wide; the last tensor is what comes out."""
    from ai_edge_litert import schema_py_generated as schema

    from examples.one_network.tflite_file import TfliteOperator, TfliteTensor

    code, kind = schema.BuiltinOperator, schema.BuiltinOptions
    channels = len(layer.bias)
    weight, bias, total, pooled = (f"{name}{at}" for name in ("weight", "bias", "sum", "pool"))
    tensors = [
        TfliteTensor(
            weight,
            (channels, 3, 3, layer.weight.shape[1]),
            value=layer.weight.transpose(0, 2, 3, 1),
        ),
        TfliteTensor(bias, (channels,), value=layer.bias),
        TfliteTensor(total, (-1, size, size, channels)),
        TfliteTensor(pooled, (-1, size // 2, size // 2, channels)),
    ]
    convolve = schema.Conv2DOptionsT()
    convolve.padding, convolve.strideW, convolve.strideH = schema.Padding.SAME, 1, 1
    convolve.dilationWFactor = convolve.dilationHFactor = 1
    convolve.fusedActivationFunction = schema.ActivationFunctionType.RELU
    pool = schema.Pool2DOptionsT()
    pool.padding, pool.strideW, pool.strideH = schema.Padding.VALID, 2, 2
    pool.filterWidth = pool.filterHeight = 2
    operators = [
        TfliteOperator(
            code.CONV_2D, (before, weight, bias), (total,), convolve, kind.Conv2DOptions
        ),
        TfliteOperator(code.MAX_POOL_2D, (total,), (pooled,), pool, kind.Pool2DOptions),
    ]
    return tensors, operators


def write_ncnn(folder: Path) -> None:
    """A line of text for each layer; its weights in order, each array behind a word of zeros."""
    *convolutions, classifier = layers_of(network())
    lines, weights, before = [f"Input input 0 1 {INPUT}"], b"", INPUT
    for at, layer in enumerate(convolutions):
        lines += [
            f"Convolution conv{at} 1 1 {before} sum{at} 0={len(layer.bias)} 1=3 4=1 5=1 "
            f"6={layer.weight.size} 9=1",
            f"Pooling pool{at} 1 1 sum{at} pool{at} 0=0 1=2 2=2",
        ]
        weights += _ncnn_weights(layer.weight, layer.bias)
        before = f"pool{at}"
    lines.append(
        f"InnerProduct classify 1 1 {before} {OUTPUT} 0={CLASSES} 1=1 2={classifier.weight.size}"
    )
    weights += _ncnn_weights(classifier.weight, classifier.bias)
    head = f"7767517\n{len(lines)} {len(lines)}\n"
    (folder / "model.param").write_text(head + "\n".join(lines) + "\n")
    (folder / "model.bin").write_bytes(weights)


def _ncnn_weights(weight: Any, bias: Any) -> bytes:
    return struct.pack("<i", 0) + bytes(weight.tobytes()) + bytes(bias.tobytes())


def write_mnn(folder: Path) -> None:
    from MNN import expr

    *convolutions, classifier = layers_of(network())

    def constant(array: Any) -> Any:
        return expr.const(array.flatten().tolist(), list(array.shape), expr.NCHW, expr.float)

    image = expr.placeholder([1, CHANNELS[0], SIZE, SIZE], expr.NCHW, expr.float)
    image.name = INPUT
    planes = expr.convert(image, expr.NC4HW4)
    for layer in convolutions:
        total = expr.conv2d(
            planes,
            constant(layer.weight),
            constant(layer.bias),
            padding=(1, 1),
            padding_mode=expr.CAFFE,
        )
        planes = expr.max_pool(expr.relu(total), (2, 2), (2, 2))
    flat = expr.reshape(expr.convert(planes, expr.NCHW), [-1, FLAT])
    scores = expr.matmul(flat, constant(classifier.weight.T.copy())) + constant(classifier.bias)
    scores.name = OUTPUT
    expr.save([scores], str(folder / "model.mnn"))


WRITERS: dict[str, Callable[[Path], None]] = {
    "onnxruntime": write_onnx,
    "openvino": write_openvino,
    "pytorch": write_pytorch,
    "litert": write_litert,
    "ncnn": write_ncnn,
    "mnn": write_mnn,
}
"""In the order of the versions, from 1."""
