"""What a rollout's charts are drawn from: how its arms stood at the moments somebody looked.

The control side keeps sums, not their past; this keeps a past for as long as the process lives.
"""

from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MOST_ROLLOUTS, MOST_POINTS, MOST_SHOWN = 64, 900, 120
LEAST_APART_S = 1.0

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RolloutChartPoint:
    """`at` in seconds since the epoch; errors in percent and latencies in ms since the phase
    began, None while an arm has answered nothing."""

    at: float
    phase: str
    weight: float
    stable_errors: float | None
    candidate_errors: float | None
    stable_p99_ms: float | None
    candidate_p99_ms: float | None
    stable_requests: int
    candidate_requests: int


class RolloutChartPoints:
    """Of the rollouts that were looked at last; the oldest points give way. On the loop."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, deque[RolloutChartPoint]] = OrderedDict()

    def note(self, rollout: str, point: RolloutChartPoint) -> Sequence[RolloutChartPoint]:
        """Keep a point, unless the last is as good as new; all that are kept, oldest first."""
        points = self._kept.setdefault(rollout, deque(maxlen=MOST_POINTS))
        self._kept.move_to_end(rollout)
        while len(self._kept) > MOST_ROLLOUTS:
            self._kept.popitem(last=False)
        if not points or point.at - points[-1].at >= LEAST_APART_S:
            points.append(point)
        return list(points)


def point_of(rollout: Row, standing: Row, at: float) -> RolloutChartPoint:
    """Pure. What stands for the candidate are the copies while it is only mirrored."""
    arms = standing["arms"]
    mirrored = rollout["mirror"] > 0 and rollout["weight"] == 0
    stable, tried = arms["stable"], arms["mirrored" if mirrored else "candidate"]
    return RolloutChartPoint(
        at,
        rollout["phase"],
        rollout["weight"],
        _errors(stable),
        _errors(tried),
        _ms(stable["p99_s"]),
        _ms(tried["p99_s"]),
        stable["requests"],
        tried["requests"],
    )


def thinned(points: Sequence[RolloutChartPoint]) -> list[RolloutChartPoint]:
    """At most MOST_SHOWN of them, the last always. Pure."""
    stride = -(-len(points) // MOST_SHOWN) or 1
    return list(points[::-1][::stride][::-1])


def chart(
    points: Sequence[RolloutChartPoint], what: str, margin: float, ratio: float
) -> list[list[Any]]:
    """[moments, stable, the most the candidate may have, candidate] of "errors" or "p99_ms";
    what it may have is the stable one's times `ratio` plus `margin`. Pure."""
    stable = [getattr(one, f"stable_{what}") for one in points]
    return [
        [round(one.at, 1) for one in points],
        stable,
        [None if one is None else round(one * ratio + margin, 4) for one in stable],
        [getattr(one, f"candidate_{what}") for one in points],
    ]


def _errors(arm: Row) -> float | None:
    return round(arm["errors"] * 100 / arm["requests"], 4) if arm["requests"] else None


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 3)
