"""The layers of a network that int8 pays for, and the method that suits them. Pure."""

from typing import Literal

import onnx

Method = Literal["static", "dynamic"]

CONVOLUTIONS = frozenset({"Conv", "ConvTranspose"})
PRODUCTS = frozenset({"MatMul", "Gemm", "Attention", "LSTM", "GRU"})


def layers_of(network: onnx.ModelProto) -> list[str]:
    """Names of the nodes that multiply by weights, in the file's order."""
    weights = {one.name for one in network.graph.initializer}
    return [
        node.name
        for node in network.graph.node
        if node.op_type in CONVOLUTIONS | PRODUCTS and weights.intersection(node.input)
    ]


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
