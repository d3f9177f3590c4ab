"""A soak as a picture: five panels over the minutes, as SVG for light and dark pages. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeVar
from xml.sax.saxutils import escape

from benchmarks.soak.latency import merged, quantile_ms
from benchmarks.soak.rows import Minute, Run, Sample

_T = TypeVar("_T")

WIDTH, PANEL, GAP, LEFT, RIGHT, TOP = 820, 150, 62, 72, 178, 34
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b8860b", "#56b4e9", "#8a8a8a")
"""Okabe and Ito's, a little darker where the page is white: told apart by all eyes."""

_SHOWN = {
    "right": ("right",),
    "cancelled": ("cancelled",),
    "refused": ("refused",),
    "wrong, lost, hung": ("wrong", "lost", "hung"),
}


@dataclass(frozen=True, slots=True)
class Panel:
    """`series`: name → (minute, value); `is_log`: the axis grows tenfold a step."""

    title: str
    unit: str
    series: dict[str, list[tuple[float, float]]]
    is_log: bool = False


def svg(runs: Sequence[Run]) -> str:
    """All runs, one after the other."""
    panels = _panels(runs)
    last = max((x for one in panels for line in one.series.values() for x, _ in line), default=1.0)
    height = TOP + len(panels) * (PANEL + GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" font-family="sans-serif" font-size="12">',
        "<style>text{fill:#333}.axis{stroke:#777}.grid{stroke:#8884}"
        "@media(prefers-color-scheme:dark){text{fill:#ddd}.axis{stroke:#999}}</style>",
    ]
    for number, panel in enumerate(panels):
        parts += _panel(panel, TOP + number * (PANEL + GAP), max(last, 1e-9))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panels(runs: Sequence[Run]) -> list[Panel]:
    samples = _in_one_line(runs)
    minutes = [(one.number, one) for run in runs for one in run.minutes if one.outcomes]
    drawn = {name: [(float(at), _latency_ms(one, share)) for at, one in minutes]
             for name, share in (("p50", 0.5), ("p99", 0.99), ("longest", 1.0))}  # fmt: skip
    return [
        Panel("Memory (RSS) of the median process", "MiB", _by_role(samples, "rss", 1024)),
        Panel("Open descriptors of the median process", "", _by_role(samples, "files", 1)),
        Panel("Threads of the median process", "", _by_role(samples, "threads", 1)),
        Panel("Requests a minute, by outcome", "", _by_outcome(minutes)),
        Panel("Latency of all but the decoupled model", "ms", drawn, True),
    ]


def _latency_ms(minute: Minute, share: float) -> float:
    """A bucket ends above what is in it: no quantile is longer than the longest."""
    longest = 1000 * max(_quick(minute.longest).values(), default=0.0)
    return min(quantile_ms(merged(_quick(minute.latency).values()), share), longest)


def _quick(by_kind: Mapping[str, _T]) -> dict[str, _T]:
    """But for what takes its time by design: the decoupled model's answers, crashing clients."""
    slow = ("ModelStreamInfer", "generate_stream", "slow reader", "client crash")
    return {kind: found for kind, found in by_kind.items() if not kind.startswith(slow)}


def _in_one_line(runs: Sequence[Run]) -> list[tuple[float, Sample]]:
    found, before = [], 0.0
    for run in runs:
        found += [(before + one.at / 60, one) for one in run.samples]
        before = found[-1][0] if found else before
    return found


def _by_role(
    samples: Sequence[tuple[float, Sample]], name: str, unit: float
) -> dict[str, list[tuple[float, float]]]:
    """Roles that are there most of the time; one point a minute."""
    roles = sorted({it.role for _, one in samples for it in one.processes})
    found: dict[str, list[tuple[float, float]]] = {}
    for role in roles:
        points = [
            (at, median(getattr(it, name) / unit for it in one.processes if it.role == role))
            for at, one in samples
            if any(it.role == role for it in one.processes)
        ]
        if 2 * len(points) > len(samples):
            found[role] = points[:: max(1, len(points) // 120)]
    return found


def _by_outcome(
    minutes: Sequence[tuple[int, Minute]],
) -> dict[str, list[tuple[float, float]]]:
    """The bad ones together: their line must not be there. Each name has the total behind it."""
    found = {}
    for name, outcomes in _SHOWN.items():
        points = [
            (
                float(at),
                float(sum(it.get(one, 0) for it in row.outcomes.values() for one in outcomes)),
            )
            for at, row in minutes
        ]
        found[f"{name}: {sum(y for _, y in points):,.0f}"] = points
    return found


def _panel(panel: Panel, top: float, last: float) -> list[str]:
    values = [y for line in panel.series.values() for _, y in line]
    ticks = _log_ticks(values) if panel.is_log else _ticks(max(values, default=1.0))
    right, bottom = WIDTH - RIGHT, top + PANEL

    def x_of(minute: float) -> float:
        return LEFT + (right - LEFT) * minute / last

    def y_of(value: float) -> float:
        if panel.is_log:
            low, high = math.log(ticks[0]), math.log(ticks[-1])
            return bottom - PANEL * (math.log(max(value, ticks[0])) - low) / (high - low)
        return bottom - PANEL * value / ticks[-1]

    title = f"{panel.title}, {panel.unit}" if panel.unit else panel.title
    parts = [f'<text x="{LEFT}" y="{top - 10:.0f}" font-weight="bold">{escape(title)}</text>']
    for tick in ticks:
        y = y_of(tick)
        parts.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{right}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{tick:,g}</text>')
    for minute in _ticks(last, 6):
        if minute <= last:
            parts.append(
                f'<text x="{x_of(minute):.1f}" y="{bottom + 16:.0f}" text-anchor="middle">'
                f"{minute:g}</text>"
            )
    parts.append(f'<path class="axis" fill="none" d="M{LEFT} {top:.0f}V{bottom:.0f}H{right}"/>')
    parts.append(
        f'<text x="{(LEFT + right) / 2:.0f}" y="{bottom + 32:.0f}" text-anchor="middle">'
        "minutes</text>"
    )
    for number, (name, points) in enumerate(panel.series.items()):
        parts += _line(number, name, [(x_of(x), y_of(y)) for x, y in points], right, top)
    return parts


def _line(
    number: int, name: str, points: Sequence[tuple[float, float]], right: float, top: float
) -> list[str]:
    colour = COLOURS[number % len(COLOURS)]
    drawn = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    y = top + 10 + 18 * number
    return [
        f'<polyline fill="none" stroke="{colour}" stroke-width="1.8" points="{drawn}"/>',
        f'<path stroke="{colour}" stroke-width="3" d="M{right + 14} {y - 4:.0f}h16"/>',
        f'<text x="{right + 36}" y="{y:.0f}">{escape(name)}</text>',
    ]


def _ticks(most: float, about: int = 4) -> list[float]:
    """Round numbers from 0 to `most` or just above."""
    rough = max(most, 1e-9) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(it * power for it in (1, 2, 5, 10) if it * power >= rough)
    return [step * number for number in range(math.ceil(most / step - 1e-9) + 1)]


def _log_ticks(values: Sequence[float]) -> list[float]:
    """Powers of ten around all values."""
    found = [it for it in values if it > 0] or [1.0]
    low = math.floor(math.log10(min(found)) + 1e-9)
    high = max(math.ceil(math.log10(max(found)) - 1e-9), low + 1)
    return [10.0**it for it in range(low, high + 1)]
