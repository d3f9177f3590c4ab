"""Where each step of an ensemble is drawn, and the lines of tensors between them. Pure.

Steps lie in layers from the request at the top to the answer at the bottom, each below all that it
needs. A line that passes a layer has a place of its own there, so that it crosses no step. Layers
are put in an order in which lines cross little, and moved towards what they are joined to.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

Row = Mapping[str, Any]

REQUEST, ANSWER = -1, -2
"""Of what is no step: where the ensemble's inputs come from, and where its outputs go."""

BOX_WIDTH, LINE_HEIGHT, BOX_PADDING = 212, 17, 9
_SPACE, _PASSING, _MARGIN = 30, 24, 10
_GAP, _LABEL_HEIGHT = 40, 16
_PORT = 28
"""Between two lines that leave or enter one box."""
_SWEEPS = 8
_CHARACTER = 6.6
"""Pixels of one of a label, on average."""
LONGEST_LABEL = 28

MOST_PLACES = 1_000
"""Lines, and layers that they pass, of a graph that is laid out, which takes half a second at most.
Nobody could follow more."""

Vertex = int | tuple[int, int]
"""A box by its number, or the place of a line (its index) in a layer that it passes."""


@dataclass(frozen=True, slots=True)
class StepLink:
    """What goes from one box to another: `tensors`, and those that its condition looks at."""

    source: int
    target: int
    tensors: tuple[str, ...]
    conditions: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        return ", ".join(dict.fromkeys((*self.tensors, *self.conditions)))

    @property
    def decides(self) -> bool:
        """Whether it is for the condition alone."""
        return not self.tensors


@dataclass(frozen=True, slots=True)
class PlacedBox:
    """`number` of the step, or REQUEST or ANSWER; `x`, `y`: its upper left corner."""

    number: int
    x: float
    y: float
    height: float


@dataclass(frozen=True, slots=True)
class PlacedLink:
    """`path`: of an SVG. `text`: what there is room for, with its middle at `x`, `y`."""

    link: StepLink
    path: str
    text: str
    x: float
    y: float


@dataclass(frozen=True, slots=True)
class StepLayout:
    """`left`: where the picture begins; pixels."""

    boxes: tuple[PlacedBox, ...]
    links: tuple[PlacedLink, ...]
    left: float
    width: float
    height: float


def links_of(steps: Sequence[Row], inputs: Iterable[str], outputs: Iterable[str]) -> list[StepLink]:
    """The lines of a graph as `/instances/MODEL/versions/VERSION/steps` tells it."""
    writers: dict[str, list[int]] = {name: [REQUEST] for name in inputs}
    for step in steps:
        for tensor in step["outputs"].values():
            writers.setdefault(tensor, []).append(step["number"])
    tensors: dict[tuple[int, int], dict[str, None]] = defaultdict(dict)
    conditions: dict[tuple[int, int], dict[str, None]] = defaultdict(dict)
    for step in steps:
        for tensor in step["inputs"].values():
            for source in writers.get(tensor, ()):
                tensors[source, step["number"]][tensor] = None
        tested = step["condition"].partition(" ")[0]
        for source in writers.get(tested, ()):
            conditions[source, step["number"]][tested] = None
    for name in outputs:
        for source in writers.get(name, ()):
            tensors[source, ANSWER][name] = None
    return [
        StepLink(*pair, tuple(tensors.get(pair, ())), tuple(conditions.get(pair, ())))
        for pair in dict.fromkeys((*tensors, *conditions))
    ]


def lay_out(lines: Mapping[int, int], links: Sequence[StepLink]) -> StepLayout | None:
    """`lines`: of text in each box, by number; REQUEST and ANSWER are among them. None where more
    lines would have to be drawn than `MOST_PLACES`. Those that were asked for last are kept."""
    return _lay_out(tuple(lines.items()), tuple(links)) if len(links) <= MOST_PLACES else None


@lru_cache(maxsize=32)
def _lay_out(counts: tuple[tuple[int, int], ...], links: tuple[StepLink, ...]) -> StepLayout | None:
    lines = dict(counts)
    layers = _layers(lines, links)
    if sum(layers[link.target] - layers[link.source] for link in links) > MOST_PLACES:
        return None
    chains = [_chain(index, link, layers) for index, link in enumerate(links)]
    rows: list[list[Vertex]] = [[] for _ in range(max(layers.values()) + 1)]
    for number, layer in layers.items():
        rows[layer].append(number)
    for chain in chains:
        for layer, vertex in enumerate(chain[1:-1], layers[chain[0]] + 1):
            rows[layer].append(vertex)
    joined = _joined(chains)
    _order(rows, joined)
    return _Drawing(rows, _middles(rows, joined), chains, lines).layout(links)


def _layers(lines: Mapping[int, int], links: Sequence[StepLink]) -> dict[Vertex, int]:
    """Of each box, its layer: one below the lowest that it needs; the answer is below all."""
    layers: dict[Vertex, int] = {number: int(number != REQUEST) for number in lines}
    for _ in lines:
        for link in links:
            layers[link.target] = max(layers[link.target], layers[link.source] + 1)
    layers[ANSWER] = 1 + max(layer for number, layer in layers.items() if number != ANSWER)
    return layers


def _chain(index: int, link: StepLink, layers: Mapping[Vertex, int]) -> list[Vertex]:
    """The vertices that a line goes through, one a layer."""
    passed = range(layers[link.source] + 1, layers[link.target])
    return [link.source, *((index, layer) for layer in passed), link.target]


_Joined = Mapping[Vertex, tuple[list[Vertex], list[Vertex]]]
"""What each vertex is joined to above and below."""


def _joined(chains: Sequence[Sequence[Vertex]]) -> _Joined:
    found: dict[Vertex, tuple[list[Vertex], list[Vertex]]] = defaultdict(lambda: ([], []))
    for chain in chains:
        for above, below in pairwise(chain):
            found[above][1].append(below)
            found[below][0].append(above)
    return found


def _order(rows: list[list[Vertex]], joined: _Joined) -> None:
    """Sort each row by where what it is joined to stands: downwards, upwards, and again."""
    for sweep in range(_SWEEPS):
        is_down = sweep % 2 == 0
        place: dict[Vertex, int] = {}  # in the neighbouring row, all that a vertex is joined to
        for row in rows if is_down else reversed(rows):
            wanted = {}
            for at, vertex in enumerate(row):
                others = joined[vertex][0 if is_down else 1]
                wanted[vertex] = _mean([place[one] for one in others], at)
            row.sort(key=wanted.__getitem__)
            place = {vertex: at for at, vertex in enumerate(row)}


def _middles(rows: Sequence[Sequence[Vertex]], joined: _Joined) -> dict[Vertex, float]:
    """The x of each vertex's middle: as near as there is room to those that it is joined to."""
    middles: dict[Vertex, float] = {}
    for row in rows:
        middles |= zip(row, _spaced(row, [0.0] * len(row)), strict=True)
    for _ in range(_SWEEPS):
        for row in (*rows, *reversed(rows)):
            wanted = [
                _mean([middles[one] for side in joined[vertex] for one in side], middles[vertex])
                for vertex in row
            ]
            middles |= zip(row, _spaced(row, wanted), strict=True)
    return middles


def _spaced(row: Sequence[Vertex], wanted: Sequence[float]) -> list[float]:
    """In this order with room between them: between what pushing to the right and what pushing to
    the left would make of it."""
    apart = [0.0, *((_width(a) + _width(b)) / 2 + _SPACE for a, b in pairwise(row))]
    right, left = list(wanted), list(wanted)
    for at in range(1, len(row)):
        right[at] = max(right[at], right[at - 1] + apart[at])
    for at in range(len(row) - 2, -1, -1):
        left[at] = min(left[at], left[at + 1] - apart[at + 1])
    return [(a + b) / 2 for a, b in zip(right, left, strict=True)]


class _Drawing:
    """Rows with all widths known, to be given heights and lines."""

    def __init__(
        self,
        rows: Sequence[Sequence[Vertex]],
        middles: Mapping[Vertex, float],
        chains: Sequence[Sequence[Vertex]],
        lines: Mapping[int, int],
    ) -> None:
        self._middles = middles
        self._chains = chains
        self._layer = {vertex: at for at, row in enumerate(rows) for vertex in row}
        self._box = {
            number: 2 * BOX_PADDING + LINE_HEIGHT * count for number, count in lines.items()
        }
        self._heights = [max(self._height(vertex) for vertex in row) for row in rows]
        self._leaves = self._ports(0)
        self._enters = self._ports(-1)

    def _height(self, vertex: Vertex) -> float:
        return self._box[vertex] if isinstance(vertex, int) else 0.0

    def _ports(self, end: int) -> dict[int, float]:
        """The x where each line leaves its box (`end` 0) or enters it (-1): beside the others, in
        the order of where they go."""
        step = 1 if end == 0 else -2
        beside: dict[Vertex, list[int]] = defaultdict(list)
        for index, chain in enumerate(self._chains):
            beside[chain[end]].append(index)
        ports = {}
        for box, lines in beside.items():
            lines.sort(key=lambda one: (self._middles[self._chains[one][step]], one))
            between = min(_PORT, (BOX_WIDTH - 2 * _PORT) / max(1, len(lines) - 1))
            for at, index in enumerate(lines):
                ports[index] = self._middles[box] + (at - (len(lines) - 1) / 2) * between
        return ports

    def layout(self, links: Sequence[StepLink]) -> StepLayout:
        texts = [_cut(link.words) for link in links]
        labels: dict[int, tuple[int, int, float]] = {}
        tops = [float(_MARGIN)]
        for at, height in enumerate(self._heights[:-1]):
            ending = [i for i, chain in enumerate(self._chains) if self._layer[chain[-1]] == at + 1]
            found, rows = self._labelled(ending, texts)
            labels |= {index: (row, rows, x) for index, (row, x) in found.items()}
            tops.append(tops[-1] + height + _GAP + _LABEL_HEIGHT * rows)
        boxes = tuple(
            PlacedBox(
                number,
                round(self._middles[number] - BOX_WIDTH / 2, 1),
                round(
                    tops[self._layer[number]] + (self._heights[self._layer[number]] - high) / 2, 1
                ),
                high,
            )
            for number, high in self._box.items()
        )
        placed = []
        for index, link in enumerate(links):
            row, _, x = labels[index]
            above = self._layer[link.target] - 1
            y = tops[above] + self._heights[above] + _GAP / 2 + _LABEL_HEIGHT * (row + 0.5)
            path = self._path(index, tops)
            placed.append(PlacedLink(link, path, texts[index], round(x, 1), round(y, 1)))
        half = {one: len(one.text) * _CHARACTER / 2 for one in placed}
        bends = [self._middles[vertex] for chain in self._chains for vertex in chain]
        left = min(bends + [box.x for box in boxes] + [one.x - half[one] for one in placed])
        right = max(
            bends + [box.x + BOX_WIDTH for box in boxes] + [one.x + half[one] for one in placed]
        )
        return StepLayout(
            boxes,
            tuple(placed),
            round(left - _MARGIN, 1),
            round(right - left + 2 * _MARGIN, 1),
            round(tops[-1] + self._heights[-1] + _MARGIN, 1),
        )

    def _labelled(
        self, ending: Sequence[int], texts: Sequence[str]
    ) -> tuple[dict[int, tuple[int, float]], int]:
        """The row and x of the label of each line that ends below a gap, and how many rows the gap
        needs so that none lies on another."""
        rows = 0
        while rows < len(ending):
            rows = min(len(ending), rows + 1 + rows // 8)  # of many, not each is tried
            found: dict[int, tuple[int, float]] = {}
            taken: list[list[tuple[float, float]]] = [[] for _ in range(rows)]
            for index in sorted(ending, key=lambda one: (self._enters[one], one)):
                half = len(texts[index]) * _CHARACTER / 2 + 4
                for row in range(rows):
                    x = self._x_at(index, row, rows)
                    if all(x + half <= left or x - half >= right for left, right in taken[row]):
                        taken[row].append((x - half, x + half))
                        found[index] = (row, x)
                        break
                else:
                    break  # one more row, then
            if len(found) == len(ending):
                return found, rows
        return {
            one: (row, self._x_at(one, row, len(ending))) for row, one in enumerate(ending)
        }, len(ending)

    def _x_at(self, index: int, row: int, rows: int) -> float:
        """Where a line's last stretch is in a row of labels: a cubic from straight to straight."""
        down = (_GAP / 2 + _LABEL_HEIGHT * (row + 0.5)) / (_GAP + _LABEL_HEIGHT * rows)
        chain = self._chains[index]
        begin = self._leaves[index] if len(chain) == 2 else self._middles[chain[-2]]
        t = down  # of y, whose control points lie in the middle, nearly
        return begin + (self._enters[index] - begin) * t * t * (3 - 2 * t)

    def _path(self, index: int, tops: Sequence[float]) -> str:
        chain = self._chains[index]
        x, last = self._leaves[index], len(chain) - 1
        y = self._edge(chain[0], tops, 1)
        path = f"M{x:.1f} {y:.1f}"
        for at, vertex in enumerate(chain[1:], 1):
            to = self._enters[index] if at == last else self._middles[vertex]
            top = self._edge(vertex, tops, -1)
            middle = (y + top) / 2
            path += f"C{x:.1f} {middle:.1f} {to:.1f} {middle:.1f} {to:.1f} {top:.1f}"
            x, y = to, top
            if at != last:
                y = top + self._heights[self._layer[vertex]]
                path += f"V{y:.1f}"
        return path

    def _edge(self, vertex: Vertex, tops: Sequence[float], side: int) -> float:
        """The y of the upper (-1) or lower edge of a box; the row's, of a passing line."""
        layer = self._layer[vertex]
        if not isinstance(vertex, int):
            return tops[layer]
        middle = tops[layer] + self._heights[layer] / 2
        return middle + side * self._box[vertex] / 2


def _width(vertex: Vertex) -> float:
    return BOX_WIDTH if isinstance(vertex, int) else _PASSING


def _mean(values: Sequence[float], usual: float) -> float:
    return sum(values) / len(values) if values else usual


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_LABEL else text[: LONGEST_LABEL - 1] + "…"
