"""A network of a report, drawn in layers: each node below all that it reads. Pure."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from control.jobs.report import GraphNode, NetworkGraph

NODE_WIDTH, NODE_HEIGHT = 96, 20
_COLUMN, _ROW, _MARGIN = 108, 34, 8
MOST_DRAWN = 400
"""Nodes of a drawing; of more nobody could follow a line, and the table of operators says more."""
LONGEST_NAME = 14


@dataclass(frozen=True, slots=True)
class DrawnNode:
    """`x`, `y`: its upper left corner."""

    x: int
    y: int
    operator: str
    words: str


@dataclass(frozen=True, slots=True)
class DrawnNetwork:
    """`nodes` and `edges` (SVG paths) are empty where there are too many to be drawn; `operators`:
    how often each occurs, the most frequent first."""

    title: str
    width: int
    height: int
    nodes: Sequence[DrawnNode]
    edges: Sequence[str]
    operators: Sequence[tuple[str, int]]
    total: int


def draw_network(graph: NetworkGraph) -> DrawnNetwork:
    """Links to nodes that are not listed before the reader are left out."""
    nodes = graph.nodes
    operators = Counter(one.operator for one in nodes).most_common()
    total = len(nodes) + graph.omitted
    if not nodes or len(nodes) > MOST_DRAWN or graph.omitted:
        return DrawnNetwork(graph.title, 0, 0, (), (), operators, total)
    places = _places(nodes)
    drawn = [
        DrawnNode(x, y, _short(one.operator), f"{one.operator} {one.name}".strip())
        for one, (x, y) in zip(nodes, places, strict=True)
    ]
    edges = [
        _edge(places[source], places[number])
        for number, one in enumerate(nodes)
        for source in _sources(one, number)
    ]
    width = max(x for x, _ in places) + NODE_WIDTH + _MARGIN
    height = max(y for _, y in places) + NODE_HEIGHT + _MARGIN
    return DrawnNetwork(graph.title, width, height, drawn, edges, operators, total)


def _sources(node: GraphNode, number: int) -> list[int]:
    return sorted({one for one in node.reads if 0 <= one < number})


def _places(nodes: Sequence[GraphNode]) -> list[tuple[int, int]]:
    """Layer by longest path from an input; in a layer, near the first node that is read."""
    layers: list[int] = []
    columns: list[int] = []
    taken: dict[int, set[int]] = {}
    for number, one in enumerate(nodes):
        sources = _sources(one, number)
        layer = max((layers[source] + 1 for source in sources), default=0)
        wished = columns[sources[0]] if sources else 0
        used = taken.setdefault(layer, set())
        column = wished
        while column in used:
            column += 1
        used.add(column)
        layers.append(layer)
        columns.append(column)
    return [
        (_MARGIN + column * _COLUMN, _MARGIN + layer * _ROW)
        for layer, column in zip(layers, columns, strict=True)
    ]


def _edge(source: tuple[int, int], target: tuple[int, int]) -> str:
    """From the lower side of one box to the upper side of another."""
    x1, y1 = source[0] + NODE_WIDTH // 2, source[1] + NODE_HEIGHT
    x2, y2 = target[0] + NODE_WIDTH // 2, target[1]
    if x1 == x2 and y2 - y1 < _ROW:
        return f"M{x1} {y1}V{y2}"
    bend = (y2 - y1) // 2
    side = NODE_WIDTH if x1 == x2 else 0  # around the boxes between them
    return f"M{x1} {y1}C{x1 + side} {y1 + bend} {x2 + side} {y2 - bend} {x2} {y2}"


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"
