"""Interleaved rounds: A B C A B C …, so that a noisy minute hits everybody, then medians."""

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks.load import Sample


@dataclass(frozen=True)
class Plan:
    """How long to measure, at which concurrencies, where to keep models, logs and state."""

    rounds: int
    duration_s: float
    concurrencies: tuple[int, ...]
    image_concurrencies: tuple[int, ...]
    cache: Path
    without: frozenset[str]
    triton: Path | None = None


class Contest(NamedTuple):
    """One thing to measure: who, on which wire, under which load, and how to do it once."""

    scenario: str
    peer: str
    wire: str
    concurrency: int
    measure: Callable[[], Sample]


class Row(NamedTuple):
    """The medians of one contest."""

    scenario: str
    peer: str
    wire: str
    concurrency: int
    sample: Sample


class Spread(NamedTuple):
    """The median of some numbers, and bounds that the median of all such numbers lies between in at
    least 95 of 100 cases, whatever they are drawn from; infinite where they are too few."""

    middle: float
    lower: float
    upper: float


def interleave(contests: Sequence[Contest], rounds: int) -> list[Row]:
    """Measure every contest once per round; progress goes to stderr."""
    samples: list[list[Sample]] = [[] for _ in contests]
    for number in range(rounds):
        for contest, taken in zip(contests, samples, strict=True):
            taken.append(contest.measure())
            who = f"{contest.scenario} · {contest.peer} · {contest.wire} × {contest.concurrency}"
            print(f"round {number + 1}/{rounds}: {who}: {_brief(taken[-1])}", file=sys.stderr)
    return [
        Row(contest.scenario, contest.peer, contest.wire, contest.concurrency, middle_of(taken))
        for contest, taken in zip(contests, samples, strict=True)
    ]


def spread_of(numbers: Sequence[float]) -> Spread:
    """By the sign test: of `n` draws, how many lie below the true median is a coin's doing."""
    ordered, n = sorted(numbers), len(numbers)
    below, beyond = 0.0, 0
    while beyond < n // 2 and (below := below + math.comb(n, beyond) / 2**n) <= 0.025:
        beyond += 1
    if not beyond:
        return Spread(median(ordered), -math.inf, math.inf)
    return Spread(median(ordered), ordered[beyond - 1], ordered[n - beyond])


def middle_of(samples: Sequence[Sample]) -> Sample:
    """The median of every column by itself."""
    columns = [median(column) for column in zip(*samples, strict=True)]
    return Sample(int(columns[0]), *columns[1:])


def _brief(sample: Sample) -> str:
    return f"{sample.per_second:.0f}/s, {sample.cpu_us:.0f} CPU-µs"
