"""Which level of points answers a question, and which stretches of time are to be sealed. Pure.

Windows of 10 s are kept as gateways sent them; an hour of them is sealed into chunks of points of a
minute, and a day of those into chunks of points of 15 minutes. What is not sealed yet is read from
the level below.
"""

from typing import NamedTuple

from control.series.points import WINDOW_S

HOUR_S, DAY_S = 3600, 86_400


class SeriesLevel(NamedTuple):
    """Points of `step_s` seconds, in chunks of `span_s`, kept for `keep_s`."""

    step_s: int
    span_s: int
    keep_s: int


WINDOWS = SeriesLevel(WINDOW_S, WINDOW_S, 2 * HOUR_S)
MINUTES = SeriesLevel(60, HOUR_S, 2 * DAY_S)
QUARTERS = SeriesLevel(900, DAY_S, 60 * DAY_S)
CHUNKED = (MINUTES, QUARTERS)

LATE_S = 1200
"""How long after the end of a stretch it is sealed: a gateway sends what it counted while the
control process was away, 15 minutes of it at most."""


USUAL_LIMIT_BYTES = 2 * 2**30
"""Of the database, unless a setting says otherwise."""

MOST_MERGED = 2
"""Windows that become one point of an answer: all subjects of a window are read for one of them."""


def level_for(since: int, until: int, now: int, most_points: int) -> SeriesLevel:
    """The finest one that has everything since then, and of which little is read in vain."""
    few = until - since <= most_points * MOST_MERGED * WINDOWS.step_s
    if few and since >= now - WINDOWS.keep_s:
        return WINDOWS
    return MINUTES if since >= now - MINUTES.keep_s else QUARTERS


def step_for(since: int, until: int, level: SeriesLevel, most_points: int) -> int:
    """Seconds between two points of the answer: a multiple of the level's."""
    wanted_s = (until - since) / most_points
    return level.step_s * max(1, -int(-wanted_s // level.step_s))


def sealable(level: SeriesLevel, oldest: int, now: int) -> int | None:
    """The start of the stretch with the oldest point that is not in a chunk yet; None while it is
    not over, or more of it may come."""
    start = oldest - oldest % level.span_s
    return start if start + level.span_s + LATE_S <= now else None
