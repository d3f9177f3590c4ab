"""Latencies counted in fixed buckets that merge over servers, and the ratio of two quantiles. Pure.

32 buckets an octave from 10 µs to 1,000 s: a bucket is 2.2 % wide, so a quantile read from it is
at most 2.2 % off. What is shorter or longer falls into the first or the last one.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from operator import add
from typing import TYPE_CHECKING, Any

from control.statistics.sequential import HORIZON, Interval, log_mixture, spread

if TYPE_CHECKING:
    import numpy

SHORTEST_S, LONGEST_S = 1e-5, 1e3
_PER_OCTAVE = 32
_EDGE_COUNT = math.ceil(math.log2(LONGEST_S / SHORTEST_S) * _PER_OCTAVE) + 1
EDGES: tuple[float, ...] = tuple(
    SHORTEST_S * math.exp2(number / _PER_OCTAVE) for number in range(_EDGE_COUNT)
)
"""Bucket i counts what is above EDGES[i - 1] and at most EDGES[i], in seconds."""

BUCKETS = len(EDGES) + 1
BUCKET_LOG_WIDTH = math.log(2) / _PER_OCTAVE
"""Between the logarithms of two edges."""


class Histogram:
    """Counts of latencies in seconds. Its owner adds; everybody else gets a merged copy."""

    __slots__ = ("counts", "n")

    def __init__(self) -> None:
        self.counts = [0] * BUCKETS
        self.n = 0

    def add(self, seconds: float, times: int = 1) -> None:
        """`seconds` is no NaN; less than nothing counts as nothing."""
        self.counts[bisect_left(EDGES, seconds)] += times
        self.n += times

    def add_many(self, seconds: "Sequence[float] | numpy.ndarray[Any, Any]") -> None:
        """The same for a list or an array of them, in a tenth of the time."""
        import numpy

        found = numpy.bincount(_edges().searchsorted(seconds), minlength=BUCKETS)
        self.counts = [*map(add, self.counts, found.tolist())]
        self.n += len(seconds)

    def merged(self, other: "Histogram") -> "Histogram":
        """A new one with the counts of both."""
        both = Histogram()
        both.counts = [*map(add, self.counts, other.counts)]
        both.n = self.n + other.n
        return both

    def quantile(self, q: float) -> float:
        """In seconds, between the edges of its bucket; NaN while nothing was counted."""
        if not self.n:
            return math.nan
        rank = max(1, math.ceil(q * self.n))
        index, before = self._bucket_of(rank)
        return _seconds_in(index, rank - before, self.counts[index])

    def bucket_of(self, q: float) -> int:
        """Where the quantile lies; something was counted."""
        return self._bucket_of(max(1, math.ceil(q * self.n)))[0]

    def beyond(self, bucket: int) -> int:
        """How many lie in longer ones."""
        return sum(self.counts[bucket + 1 :])

    def at_least(self, rank: int) -> float:
        """The lower edge of where the `rank`-th shortest lies; 0.0 for rank 0 and below."""
        index = self._bucket_of(rank)[0] if rank > 0 else 0
        return EDGES[index - 1] if index else 0.0

    def at_most(self, rank: int) -> float:
        """The upper edge of where the `rank`-th shortest lies; infinite beyond the last one."""
        index = self._bucket_of(rank)[0] if rank <= self.n else BUCKETS - 1
        return EDGES[index] if index < BUCKETS - 1 else math.inf

    def as_list(self) -> list[int]:
        """The first bucket with something in it, then the counts from it to the last such one."""
        if not self.n:
            return []
        used = [index for index, count in enumerate(self.counts) if count]
        return [used[0], *self.counts[used[0] : used[-1] + 1]]

    @classmethod
    def from_list(cls, packed: Sequence[int]) -> "Histogram":
        """Raises ValueError for what `as_list` cannot have made."""
        made = cls()
        if not packed:
            return made
        first, *counts = packed
        whole = all(type(number) is int and number >= 0 for number in packed)
        if not whole or first + len(counts) > BUCKETS:
            raise ValueError(f"not a histogram of {BUCKETS} buckets: {packed!s:.80}")
        made.counts[first : first + len(counts)] = counts
        made.n = sum(counts)
        return made

    def _bucket_of(self, rank: int) -> tuple[int, int]:
        """The bucket of the `rank`-th shortest, 1 to n, and how many lie in those before it."""
        sums = [*accumulate(self.counts)]
        index = bisect_left(sums, rank)
        if index == BUCKETS:
            return BUCKETS - 1, sums[-1]
        return index, sums[index] - self.counts[index]


def quantile_of_buckets(buckets: Sequence[tuple[int, int]], q: float) -> float:
    """As `Histogram.quantile`, of the buckets in which something is, in order, each with its count:
    few of 852."""
    n = sum(count for _, count in buckets)
    rank = max(1, math.ceil(q * n))
    before = 0
    for index, count in buckets:
        if rank <= before + count:
            return _seconds_in(index, rank - before, count)
        before += count
    return math.nan


def _seconds_in(index: int, rank: int, count: int) -> float:
    """Where the `rank`-th shortest of the `count` in a bucket lies."""
    if index in (0, BUCKETS - 1):
        return EDGES[min(index, BUCKETS - 2)]
    return EDGES[index - 1] * math.exp2((rank - 0.5) / count / _PER_OCTAVE)


@dataclass(frozen=True, slots=True)
class Ranks:
    """The quantile lies between the `lower`-th and the `upper`-th shortest of n; 0 and n + 1 stand
    for no bound."""

    lower: int
    upper: int


def quantile_ratio(a: Histogram, b: Histogram, q: float, alpha: float) -> Interval:
    """For a's quantile over b's, looked at ONCE per pair of histograms (a window of requests).

    Exact for any distribution of independent latencies: order statistics of each arm at alpha / 2,
    widened to the buckets' edges. It misses the truth with a probability of at most `alpha`, in
    each window. From 0 to infinity while an arm has too few: a bound above p99 needs 437 requests
    at alpha 0.05, one above p95 86. Raises ValueError for q or alpha out of range.
    """
    _check(q, alpha)
    return _ratio(a, b, lambda n: _ranks_once(n, q, alpha / 2))


def lasting_quantile_ratio(
    a: Histogram, b: Histogram, q: float, alpha: float, horizon: int = HORIZON
) -> Interval:
    """The same over everything since the beginning, however often one looks at it.

    Narrowest at `horizon` requests of both arms. Raises ValueError for q or alpha out of range.
    """
    _check(q, alpha)
    if not a.n or not b.n:
        return Interval(0.0, math.inf)
    strength = 1 / spread(alpha, max(1, horizon // 2))
    prior = q * strength, (1 - q) * strength
    return _doubtful_ratio(_LogEvidence(a, q, prior), _LogEvidence(b, q, prior), -math.log(alpha))


def _check(q: float, alpha: float) -> None:
    if not 0 < q < 1:
        raise ValueError(f"a quantile lies between 0 and 1, got {q}")
    if not 0 < alpha <= 0.5:
        raise ValueError(f"alpha must be above 0 and at most 0.5, got {alpha}")


def _ratio(a: Histogram, b: Histogram, ranks: Callable[[int], Ranks]) -> Interval:
    of_a, of_b = ranks(a.n), ranks(b.n)
    lowest, highest = a.at_least(of_a.lower), a.at_most(of_a.upper)
    below, above = b.at_least(of_b.lower), b.at_most(of_b.upper)
    return Interval(lowest / above, highest / below if below > 0 else math.inf)


def _ranks_once(n: int, q: float, alpha: float) -> Ranks:
    """From the binomial distribution of how many of n lie at or below the quantile."""
    from scipy.special import bdtr

    middle = round(q * n)
    lower = _first(range(middle + 1), lambda rank: bdtr(rank, n, q) > alpha / 2)
    upper = _first(range(middle, n + 1), lambda rank: bdtr(rank - 1, n, q) >= 1 - alpha / 2)
    return Ranks(lower, upper)


def _first(numbers: range, holds: Callable[[int], bool]) -> int:
    """The first that holds, where all after it do too; one more than the last if none does."""
    low, high = numbers.start, numbers.stop
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low


class _LogEvidence:
    """How much speaks against an arm's quantile being in each bucket, as the log of a martingale.

    The count of what is at or below a quantile is a coin with a known chance, so that a Beta
    `prior` of chances makes one (Howard and Ramdas, 2022). Least at `mode`, more on both sides.
    """

    def __init__(self, histogram: Histogram, q: float, prior: tuple[float, float]) -> None:
        self._below = [0, *accumulate(histogram.counts)]
        self._n, self._q, self._prior = histogram.n, q, prior
        self._middle = round(q * histogram.n)
        self._quantiles: dict[int, float] = {}
        self.mode = bisect_left(self._below, self._middle, 1) - 1

    def at(self, bucket: int) -> float:
        count = min(max(self._middle, self._below[bucket]), self._below[bucket + 1])
        doubt = self._quantiles.get(count)
        if doubt is None:
            doubt = self._quantiles[count] = log_mixture(count, self._n, self._prior, self._q)
        return doubt

    def within(self, limit: float) -> range:
        """The buckets that less than `limit` speaks against; `mode` must be one."""
        first = _first(range(self.mode + 1), lambda bucket: self.at(bucket) < limit)
        return range(first, _first(range(self.mode, BUCKETS), lambda one: self.at(one) >= limit))


def _doubtful_ratio(a: _LogEvidence, b: _LogEvidence, limit: float) -> Interval:
    """Of all pairs of buckets that the doubts together do not exclude. Arms are independent, so
    the product of their martingales is one, and a sum of logs is held against one limit."""
    possible = a.within(limit - b.at(b.mode))
    falling = [-a.at(bucket) for bucket in range(possible.start, a.mode + 1)]
    rising = [a.at(bucket) for bucket in range(a.mode, possible.stop)]
    lower, upper = math.inf, 0.0
    for bucket in b.within(limit - a.at(a.mode)):
        left = limit - b.at(bucket)
        lowest = possible.start + bisect_right(falling, -left)
        beyond = a.mode + bisect_left(rising, left)
        shortest = _edge(bucket)
        lower = min(lower, _edge(lowest) / _edge(bucket + 1))
        upper = max(upper, _edge(beyond) / shortest if shortest else math.inf)
    return Interval(lower, upper)


@cache
def _edges() -> "numpy.ndarray[tuple[int], numpy.dtype[numpy.float64]]":
    import numpy

    return numpy.array(EDGES)


def _edge(bucket: int) -> float:
    """Where a bucket begins; where the last one ends for the one after it."""
    if bucket == 0:
        return 0.0
    return EDGES[bucket - 1] if bucket < BUCKETS else math.inf


def histogram_of(seconds: Iterable[float]) -> Histogram:
    made = Histogram()
    for one in seconds:
        made.add(one)
    return made
