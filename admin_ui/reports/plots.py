"""A plot of a report as shapes in pixels, which a template writes as SVG. Pure.

Drawn here and not in the browser, so that a report that was saved as one file shows the same.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count, takewhile

from control.jobs.messages import CurvePoint
from control.jobs.report import Plot, PlotSeries

WIDTH, HEIGHT = 560, 280
LEFT, RIGHT, TOP, BOTTOM = 64, 12, 10, 44
"""Of the plot's area, in pixels; the numbers of the axes and their names are outside of it."""

MOST_SERIES = 6
"""Styles that can be told apart, also in black and white; further series begin again."""
MOST_DRAWN_POINTS = 2_000
"""Of a series; further points are left out."""
_TICKS = 5
_LEAST, _GREATEST = 1e-100, 1e100
"""Values beyond are left out, and spans below are none: their sums and ratios are no numbers."""
_INDEX_DIGITS = 10
_MOST_MARKERS = 60
"""Points of a line that get a marker; with more of them the line is told by its dashes alone."""


@dataclass(frozen=True, slots=True)
class Tick:
    """A number on an axis, and where it stands in pixels."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Marker:
    """A point that can be pointed at: its place, and what it says."""

    x: float
    y: float
    words: str
    label: str = ""


@dataclass(frozen=True, slots=True)
class DrawnBar:
    """A bar of one series at one place of the x axis."""

    x: float
    y: float
    width: float
    height: float
    words: str


@dataclass(frozen=True, slots=True)
class DrawnSeries:
    """`style`: from 0 to MOST_SERIES - 1; `path`: of an SVG path, "" for none."""

    name: str
    style: int
    path: str = ""
    markers: Sequence[Marker] = ()
    bars: Sequence[DrawnBar] = ()


@dataclass(frozen=True, slots=True)
class DrawnPlot:
    """`rows`: the points as a table: series, x, y."""

    title: str
    x: str
    y: str
    x_ticks: Sequence[Tick] = ()
    y_ticks: Sequence[Tick] = ()
    series: Sequence[DrawnSeries] = ()
    rows: Sequence[tuple[str, str, str]] = field(default=(), repr=False)

    width = WIDTH
    height = HEIGHT
    left = LEFT
    right = WIDTH - RIGHT
    top = TOP
    bottom = HEIGHT - BOTTOM


@dataclass(frozen=True, slots=True)
class _Scale:
    """Of one axis: from a value to its pixel."""

    low: float
    high: float
    begin: float
    end: float

    def at(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return round(self.begin + share * (self.end - self.begin), 1)


def draw(plot: Plot) -> DrawnPlot:
    """Points that are no finite numbers, or too large to be drawn, are left out."""
    series = [(one, _drawn_points(one)) for one in plot.series]
    points = [point for _, kept in series for point in kept]
    if not points:
        return DrawnPlot(plot.title, plot.x, plot.y)
    if plot.kind == "bar":
        return _bars(plot, series)
    x_low, x_high = _span([x for x, _ in points])
    y_low, y_high = _span([y for _, y in points])
    x_ticks, y_ticks = ticks(x_low, x_high), ticks(y_low, y_high)
    x = _Scale(min(x_low, x_ticks[0]), max(x_high, x_ticks[-1]), LEFT, WIDTH - RIGHT)
    y = _Scale(min(y_low, y_ticks[0]), max(y_high, y_ticks[-1]), HEIGHT - BOTTOM, TOP)
    drawn = [
        _line(one, kept, number % MOST_SERIES, (x, y), plot)
        for number, (one, kept) in enumerate(series)
    ]
    return DrawnPlot(
        plot.title, plot.x, plot.y, _marked(x_ticks, x), _marked(y_ticks, y), drawn, _rows(series)
    )


def curves(points: Sequence[CurvePoint]) -> list[Plot]:
    """The live curves of a job, a plot for each, in the order in which they began."""
    found: dict[str, list[tuple[float, float]]] = {}
    for point in points:
        found.setdefault(point.curve, []).append((point.step, point.value))
    return [
        Plot(name, "step", name, (PlotSeries(name, tuple(one)),)) for name, one in found.items()
    ]


def ticks(low: float, high: float) -> list[float]:
    """Round numbers from one at or below `low` to one at or above `high`, about five of them."""
    step = _round_step((high - low) / (_TICKS - 1))
    first = math.floor(low / step + 1e-9)
    last = math.ceil(high / step - 1e-9)
    digits = max(12, 12 - math.floor(math.log10(step)))
    return [round(number * step, digits) for number in range(first, last + 1)]


def number_text(value: float) -> str:
    """A number of an axis or a table: four digits, thousands with commas."""
    if value and not 1e-4 <= abs(value) < 1e7:
        return f"{value:.3g}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _round_step(rough: float) -> float:
    power = 10.0 ** math.floor(math.log10(rough))
    return next(power * nice for nice in (1, 2, 2.5, 5, 10) if power * nice >= rough * 0.999)


def _span(values: Sequence[float]) -> tuple[float, float]:
    """The least and the greatest, apart also where all are the same."""
    low, high = min(values), max(values)
    if high - low > max(_LEAST, 1e-12 * max(abs(low), abs(high))):
        return low, high
    around = abs(low) * 0.05 if abs(low) > 1e3 * _LEAST else 1.0
    return low - around, high + around


def _drawn_points(one: PlotSeries) -> list[tuple[float, float]]:
    return [(x, y) for x, y in one.points[:MOST_DRAWN_POINTS] if _is_drawn(x) and _is_drawn(y)]


def _is_drawn(value: float) -> bool:
    return abs(value) <= _GREATEST  # False of NaN


def _labels(one: PlotSeries) -> dict[int, str]:
    """The marks of points that are there, by index."""
    return {
        int(number): text
        for number, text in one.marks.items()
        if number.isascii() and number.isdigit() and len(number) < _INDEX_DIGITS
    }


def _marked(values: Sequence[float], scale: _Scale) -> list[Tick]:
    return [Tick(scale.at(value), number_text(value)) for value in values]


def _line(
    one: PlotSeries,
    points: Sequence[tuple[float, float]],
    style: int,
    scales: tuple[_Scale, _Scale],
    plot: Plot,
) -> DrawnSeries:
    x, y = scales
    places = [(x.at(a), y.at(b)) for a, b in points]
    is_line = plot.kind == "line"
    path = "M" + "L".join(f"{a} {b}" for a, b in places) if is_line and places else ""
    labels = _labels(one)
    has_all = not is_line or len(places) <= _MOST_MARKERS
    markers = [
        Marker(*places[number], _words(one.name, points[number]), labels.get(number, ""))
        for number in range(len(places))
        if has_all or number in labels
    ]
    return DrawnSeries(one.name, style, path, markers)


def _bars(
    plot: Plot, series: Sequence[tuple[PlotSeries, Sequence[tuple[float, float]]]]
) -> DrawnPlot:
    """Side by side at each x; the label of a place is the mark of the first series there."""
    places = sorted({x for _, points in series for x, _ in points})
    low, high = _span([0.0, *(y for _, points in series for _, y in points)])
    y_ticks = ticks(low, high)
    y = _Scale(y_ticks[0], y_ticks[-1], HEIGHT - BOTTOM, TOP)
    room = (WIDTH - RIGHT - LEFT) / len(places)
    width = room * 0.8 / len(series)
    begins = {x: LEFT + room * (number + 0.1) for number, x in enumerate(places)}
    drawn = []
    for number, (one, points) in enumerate(series):
        bars = []
        for x, value in points:
            top, base = y.at(max(value, 0)), y.at(min(value, 0))
            left = round(begins[x] + width * number, 1)
            words = _words(one.name, (x, value))
            bars.append(DrawnBar(left, top, round(width, 1), round(base - top, 1), words))
        drawn.append(DrawnSeries(one.name, number % MOST_SERIES, bars=bars))
    names = _names_of_places(series)
    x_ticks = [
        Tick(round(begins[x] + room * 0.4, 1), names.get(x, number_text(x)))
        for x in _some(places, 12)
    ]
    y_marked = _marked(y_ticks, y)
    return DrawnPlot(plot.title, plot.x, plot.y, x_ticks, y_marked, drawn, _rows(series))


def _names_of_places(
    series: Sequence[tuple[PlotSeries, Sequence[tuple[float, float]]]],
) -> dict[float, str]:
    one, _ = series[0]
    return {
        one.points[number][0]: text
        for number, text in _labels(one).items()
        if number < len(one.points)
    }


def _some(places: Sequence[float], most: int) -> list[float]:
    """At most so many, evenly."""
    step = -(-len(places) // most)
    return [places[at] for at in takewhile(lambda at: at < len(places), count(0, step))]


def _words(name: str, point: tuple[float, float]) -> str:
    return f"{name}: {number_text(point[1])} at {number_text(point[0])}"


def _rows(
    series: Sequence[tuple[PlotSeries, Sequence[tuple[float, float]]]],
) -> list[tuple[str, str, str]]:
    return [
        (one.marks.get(str(number), "") or one.name, number_text(x), number_text(y))
        for one, points in series
        for number, (x, y) in enumerate(points)
    ]
