"""What one run of a workload took, and what is said of it."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple


class Heard(NamedTuple):
    """One request: its HTTP status, when each of its tokens came (seconds since it was sent), and
    how many there were. `sent_s`, `ended_s`: on the run's clock."""

    status: int
    arrivals: tuple[float, ...]
    tokens: int
    sent_s: float
    ended_s: float


class Figures(NamedTuple):
    """One run: output tokens a second, percentiles in milliseconds (nan where there is no
    streaming), and CPU seconds of the engine (nan where they are not measured)."""

    tokens_per_s: float
    ttft_p50_ms: float
    ttft_p99_ms: float
    itl_p50_ms: float
    itl_p99_ms: float
    cpu_s: float


def figures(heard: Sequence[Heard], wall_s: float, cpu_s: float = math.nan) -> Figures:
    """Of requests that were answered; the others are not counted here."""
    answered = [one for one in heard if one.status == 200]
    first = sorted(one.arrivals[0] for one in answered if one.arrivals)
    between = sorted(
        later - earlier
        for one in answered
        for earlier, later in zip(one.arrivals, one.arrivals[1:], strict=False)
    )
    return Figures(
        sum(one.tokens for one in answered) / wall_s,
        percentile(first, 0.5) * 1e3,
        percentile(first, 0.99) * 1e3,
        percentile(between, 0.5) * 1e3,
        percentile(between, 0.99) * 1e3,
        cpu_s,
    )


def of_peer(told: dict[str, Any]) -> Figures:
    """What a peer's program printed of one run; without arrivals it does not stream."""
    arrivals = told["arrivals"] or [()] * len(told["tokens"])
    heard = [
        Heard(200, tuple(row), tokens, 0.0, 0.0)
        for row, tokens in zip(arrivals, told["tokens"], strict=True)
    ]
    return figures(heard, told["wall_s"], told["cpu_s"])


def percentile(ordered: Sequence[float], share: float) -> float:
    """Of values in order; nan of none."""
    if not ordered:
        return math.nan
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
