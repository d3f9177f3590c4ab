"""What a rollout's charts are drawn from: how its arms stood at the moments that are kept. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

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


def point_of(moment: Row) -> RolloutChartPoint:
    """What stands for the candidate are the copies while it is only mirrored."""
    arms = moment["arms"]
    mirrored = moment["mirror"] > 0 and moment["weight"] == 0
    stable, tried = arms["stable"], arms["mirrored" if mirrored else "candidate"]
    return RolloutChartPoint(
        datetime.fromisoformat(moment["at"]).timestamp(),
        moment["phase"],
        moment["weight"],
        _errors(stable),
        _errors(tried),
        _ms(stable["p99_s"]),
        _ms(tried["p99_s"]),
        stable["requests"],
        tried["requests"],
    )


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
