"""The layers of a network that int8 pays for, and the method that suits them. Pure."""

from typing import Literal

import onnx

Method = Literal["static", "dynamic"]

CONVOLUTIONS = frozenset({"Conv", "ConvTranspose"})
PRODUCTS = frozenset({"MatMul", "Gemm", "Attention", "LSTM", "GRU"})

WHOLE_NUMBERS = frozenset({
    "MatMulInteger", "ConvInteger", "QLinearMatMul", "QLinearConv", "QGemm", "QAttention",
    "DynamicQuantizeLSTM", "DynamicQuantizeMatMul", "MatMulIntegerToFloat",
})  # fmt: skip


def layers_of(network: onnx.ModelProto) -> list[str]:
    """Names of the nodes that multiply by weights, in the file's order."""
    weights = {one.name for one in network.graph.initializer}
    return [
        node.name
        for node in network.graph.node
        if node.op_type in CONVOLUTIONS | PRODUCTS and weights.intersection(node.input)
    ]


def name_nodes(network: onnx.ModelProto) -> bool:
    """Name nodes without a name, and those whose name another has before them; whether any was."""
    taken = {node.name for node in network.graph.node}
    seen: set[str] = {""}
    named = False
    for at, node in enumerate(network.graph.node):
        if node.name in seen:
            node.name = _free_name(f"{node.name or node.op_type}_{at}", taken)
            taken.add(node.name)
            named = True
        seen.add(node.name)
    return named


def _free_name(wanted: str, taken: set[str]) -> str:
    while wanted in taken:
        wanted += "_"
    return wanted


def int8_layers(network: onnx.ModelProto) -> int:
    """Layers of a quantised network that compute in int8: operators of whole numbers, and those of
    floats whose operands are all dequantised."""
    restored = {
        name
        for node in network.graph.node
        if node.op_type == "DequantizeLinear"
        for name in node.output
    }
    return sum(
        node.op_type in WHOLE_NUMBERS
        or (node.op_type in CONVOLUTIONS | PRODUCTS and restored.issuperset(node.input[:2]))
        for node in network.graph.node
    )


def suitable_method(network: onnx.ModelProto) -> Method:
    """Static where there are convolutions, whose dynamic form is slow; else dynamic."""
    operators = {node.op_type for node in network.graph.node}
    return "static" if operators & CONVOLUTIONS else "dynamic"


def without_layers(network: onnx.ModelProto) -> str:
    """Why a network has nothing to quantise."""
    operators = {node.op_type for node in network.graph.node}
    if trees := sorted(name for name in operators if name.startswith("TreeEnsemble")):
        return f"it is an ensemble of trees ({trees[0]}), which compares and does not multiply"
    if any(name in operators for name in ("QLinearConv", "ConvInteger", "MatMulInteger")):
        return "its layers are quantised already"
    return f"none of its operators multiplies by weights ({', '.join(sorted(operators))})"
