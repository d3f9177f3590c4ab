"""How much an ONNX model becomes when its own functions are written out. Pure.

onnxruntime writes every call of a model's function out before it runs anything: functions that call
functions make a file of 1 KiB a graph of any size, and it ends the process where they are nested a
few thousand deep.
"""

from collections.abc import Collection, Iterable, Iterator
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple

import onnx

MOST_DEPTH = 64
"""Of functions that call each other; what exporters write is nested some ten deep."""

MOST_NODES = 100_000
"""That calls may become: onnxruntime takes minutes for so many."""

_Key = tuple[str, str, str]


class _GraphSize(NamedTuple):
    nodes: int
    depth: int


def functions_problem(model: onnx.ModelProto) -> str:
    """Why the functions of `model` cannot be written out; "" where they can."""
    bodies = {_key(one.domain, one.name, one.overload): one.node for one in model.functions}
    if len(bodies) < len(model.functions):
        return "has two functions of one name"
    calls = {key: _calls(nodes, bodies.keys()) for key, nodes in bodies.items()}
    sizes: dict[_Key, _GraphSize] = {}
    try:
        for key in TopologicalSorter(calls).static_order():
            called = [sizes[one] for one in calls[key]]
            nodes = sum(1 for _ in _nodes(bodies[key])) + sum(one.nodes for one in called)
            sizes[key] = _GraphSize(nodes, 1 + max((one.depth for one in called), default=0))
    except CycleError:
        return "has functions that call each other in a circle"
    if any(one.depth > MOST_DEPTH for one in sizes.values()):
        return f"has functions that call each other more than {MOST_DEPTH} deep"
    total = sum(sizes[key].nodes for key in _calls(model.graph.node, bodies.keys()))
    if total > MOST_NODES:
        return f"has calls of functions that become {total:.4g} nodes; at most {MOST_NODES} may be"
    return ""


def _calls(nodes: Iterable[onnx.NodeProto], functions: Collection[_Key]) -> list[_Key]:
    """The functions that `nodes` call, each as often as they do."""
    keys = (_key(node.domain, node.op_type, node.overload) for node in _nodes(nodes))
    return [key for key in keys if key in functions] if functions else []


def _key(domain: str, name: str, overload: str) -> _Key:
    return "" if domain == "ai.onnx" else domain, name, overload


def _nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """`nodes` and those of the graphs in them."""
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                waiting.extend(graph.node)
