"""A network as a report draws it: nodes in topological order, with what they read. Pure."""

import onnx

from control.jobs.report import GraphNode, NetworkGraph

MOST_NODES = 2000


def drawing(network: onnx.ModelProto, title: str) -> NetworkGraph:
    """The nodes in the file's order, which ONNX wants to be topological; constants are left out."""
    nodes: list[GraphNode] = []
    producer: dict[str, int] = {}
    shown = [node for node in network.graph.node if node.op_type != "Constant"]
    for node in shown[:MOST_NODES]:
        reads = sorted({producer[name] for name in node.input if name in producer})
        producer.update(dict.fromkeys(node.output, len(nodes)))
        nodes.append(GraphNode(node.op_type, node.name, tuple(reads)))
    return NetworkGraph(title, tuple(nodes), max(0, len(shown) - MOST_NODES))
