"""How much of what a job prints and draws is kept. Pure."""

import math
from collections.abc import Sequence

from control.jobs.messages import CurvePoint
from control.text import stored

LOG_CHARACTERS = 64 * 1024
LINE_CHARACTERS = 4096
CURVE_POINTS, CURVES = 1_000, 16
CURVE_NAME_CHARACTERS = 128
OMITTED = "[earlier lines are not kept]\n"


def log_tail(log: str, lines: Sequence[str]) -> str:
    """`log` and then `lines`: the last whole lines that fit, below a mark where others went."""
    added = "".join(stored(line, LINE_CHARACTERS).replace("\n", " ") + "\n" for line in lines)
    whole = log + added
    if len(whole) <= LOG_CHARACTERS:
        return whole
    tail = whole[len(OMITTED) - LOG_CHARACTERS :]
    return OMITTED + tail[tail.index("\n") + 1 :]


def kept_points(points: Sequence[CurvePoint], added: Sequence[CurvePoint]) -> list[CurvePoint]:
    """Both, by curve, in order: of a curve that gets too long every second point goes, and of
    curves beyond the 16th all. A value that is no finite number is not kept."""
    curves: dict[str, list[CurvePoint]] = {}
    for point in (*points, *filter(_is_finite, added)):
        name = stored(point.curve, CURVE_NAME_CHARACTERS)
        if name in curves or len(curves) < CURVES:
            curves.setdefault(name, []).append(CurvePoint(name, point.step, point.value))
    return [point for curve in curves.values() for point in _thinned(curve)]


def _is_finite(point: CurvePoint) -> bool:
    return math.isfinite(point.step) and math.isfinite(point.value)


def _thinned(curve: list[CurvePoint]) -> list[CurvePoint]:
    """The last point always stays."""
    while len(curve) > CURVE_POINTS:
        curve = curve[:-1:2] + curve[-1:]
    return curve
