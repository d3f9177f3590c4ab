"""Intervals for the difference of two arms that hold however often one looks at them. Pure.

Asymptotic confidence sequences (Waudby-Smith et al., "Time-uniform central limit theory", 2021),
narrowest at `horizon` observations of both arms together: there 1.55 times as wide as an interval
that may be looked at once. Where failures are too few for a limit theorem, an exact sequence (a
Jeffreys mixture and Ville's inequality, arm by arm) is heeded as well.

An interval at `alpha` misses the truth, at any of all looks, with a probability of at most `alpha`.
For one side alone at 5 %, ask for `alpha=0.1` and use that side.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

HORIZON = 5_000
FEW = 10
"""With fewer failures, or fewer successes, than this in an arm the exact interval is heeded."""

FEWEST_FOR_MEANS = 30
"""An arm with fewer values says nothing about its mean."""

_LEAST_ALPHA, _MOST_ALPHA = 1e-9, 0.5
_ALPHA_STEPS, _RATE_STEPS = 24, 32
_JEFFREYS = (0.5, 0.5)


@dataclass(frozen=True, slots=True)
class Interval:
    """From `lower` to `upper`, in the unit of what is compared; infinite where nothing is known."""

    lower: float
    upper: float

    def has(self, value: float) -> bool:
        return self.lower <= value <= self.upper


@dataclass(frozen=True, slots=True)
class Moments:
    """What is kept of `n` values: their mean, and `m2`, the sum of squared distances from it."""

    n: int = 0
    mean: float = 0.0
    m2: float = 0.0

    def merged(self, other: "Moments") -> "Moments":
        n = self.n + other.n
        if n == 0:
            return self
        apart = other.mean - self.mean
        mean = self.mean + apart * other.n / n
        return Moments(n, mean, self.m2 + other.m2 + apart * apart * self.n * other.n / n)

    def without(self, value: float) -> "Moments":
        """Before `value`, one of them, came in."""
        n = self.n - 1
        if n <= 0:
            return Moments()
        mean = self.mean - (value - self.mean) / n
        return Moments(n, mean, max(0.0, self.m2 - (value - mean) * (value - self.mean)))

    @property
    def variance(self) -> float:
        return self.m2 / (self.n - 1) if self.n > 1 else 0.0


def moments_of(values: Iterable[float]) -> Moments:
    found = [float(value) for value in values]
    if not found:
        return Moments()
    mean = math.fsum(found) / len(found)
    return Moments(len(found), mean, math.fsum((value - mean) ** 2 for value in found))


def difference_of_rates(
    bad_a: int, n_a: int, bad_b: int, n_b: int, alpha: float, horizon: int = HORIZON
) -> Interval:
    """For the rate of a minus the rate of b, within -1 and 1; 0 < alpha <= 0.5.

    Raises ValueError for counts that cannot be, or an alpha out of range.
    """
    _check(alpha, horizon)
    for bad, n in ((bad_a, n_a), (bad_b, n_b)):
        if not 0 <= bad <= n:
            raise ValueError(f"{bad} of {n} cannot be a rate")
    if not n_a or not n_b:
        return Interval(-1.0, 1.0)
    variance = _rate_variance(bad_a, n_a) / n_a + _rate_variance(bad_b, n_b) / n_b
    centre = bad_a / n_a - bad_b / n_b
    half = math.sqrt(variance) * width(n_a + n_b, alpha, horizon)
    lower, upper = centre - half, centre + half
    if min(bad_a, n_a - bad_a, bad_b, n_b - bad_b) < FEW:
        a, b = _exact_rate(bad_a, n_a, alpha / 2), _exact_rate(bad_b, n_b, alpha / 2)
        lower, upper = min(lower, a.lower - b.upper), max(upper, a.upper - b.lower)
    return Interval(max(-1.0, lower), min(1.0, upper))


def difference_of_means(a: Moments, b: Moments, alpha: float, horizon: int = HORIZON) -> Interval:
    """For the mean of a minus the mean of b; infinite below 30 values in an arm, or while all
    values are the same. The limit theorem is a promise about many values: with tails as heavy as
    revenue's, declare a horizon of tens of thousands. Raises ValueError for an alpha out of range.
    """
    _check(alpha, horizon)
    variances = a.variance or b.variance, b.variance or a.variance
    if min(a.n, b.n) < FEWEST_FOR_MEANS or not min(variances) > 0.0:
        return Interval(-math.inf, math.inf)
    half = math.sqrt(variances[0] / a.n + variances[1] / b.n) * width(a.n + b.n, alpha, horizon)
    centre = a.mean - b.mean
    return Interval(centre - half, centre + half)


def evidence(interval_at: Callable[[float], Interval], null: float = 0.0) -> float:
    """The smallest alpha at which the interval leaves `null` out: a p-value one may always look at.

    `interval_at` gives the interval for an alpha; 1.0 when not even that at 0.5 leaves it out, and
    never below 1e-9.
    """
    if interval_at(_MOST_ALPHA).has(null):
        return 1.0
    low, high = math.log(_LEAST_ALPHA), math.log(_MOST_ALPHA)
    if not interval_at(_LEAST_ALPHA).has(null):
        return _LEAST_ALPHA
    for _ in range(_ALPHA_STEPS):
        middle = (low + high) / 2
        if interval_at(math.exp(middle)).has(null):
            low = middle
        else:
            high = middle
    return math.exp(high)


def width(n: int, alpha: float, horizon: int = HORIZON) -> float:
    """Half the interval's width after `n` observations, in standard errors."""
    grown = n * spread(alpha, horizon)
    return math.sqrt(2 * (grown + 1) / grown * math.log(math.sqrt(grown + 1) / alpha))


def spread(alpha: float, horizon: int) -> float:
    """The mixture's variance, in variances of one observation: narrowest at `horizon`."""
    doubled = -2 * math.log(alpha)
    return (doubled + math.log(doubled + 1)) / horizon


def log_mixture(ones: int, n: int, prior: tuple[float, float], rate: float) -> float:
    """Log of the martingale against `rate`: how much better a Beta `prior` of rates foretold the
    `ones` of `n`. It ever exceeds log(1 / alpha) with a probability of at most alpha."""
    against = _times_log(ones, rate) + _times_log(n - ones, 1 - rate)
    return log_foretold(ones, n, prior) - against


def log_foretold(ones: int, n: int, prior: tuple[float, float]) -> float:
    """Log of how likely the Beta `prior` of rates makes this very order of `ones` and zeros."""
    a, b = prior
    return _log_beta(ones + a, n - ones + b) - _log_beta(a, b)


def _check(alpha: float, horizon: int) -> None:
    if not 0 < alpha <= _MOST_ALPHA:
        raise ValueError(f"alpha must be above 0 and at most {_MOST_ALPHA}, got {alpha}")
    if horizon < 1:
        raise ValueError(f"the horizon must be at least 1, got {horizon}")


def _rate_variance(bad: int, n: int) -> float:
    """One more of each, so that none seen is not taken for none to come."""
    rate = (bad + 1) / (n + 2)
    return rate * (1 - rate)


def _exact_rate(bad: int, n: int, alpha: float) -> Interval:
    limit, good = -math.log(alpha), n - bad
    foretold = log_foretold(bad, n, _JEFFREYS)

    def fits(rate: float) -> bool:
        return foretold - _times_log(bad, rate) - _times_log(good, 1 - rate) < limit

    return Interval(_last(fits, bad / n, 0.0), _last(fits, bad / n, 1.0))


def _last(fits: Callable[[float], bool], inside: float, outside: float) -> float:
    """The farthest from `inside` that fits on the way to `outside`, rounded outwards."""
    if fits(outside):
        return outside
    for _ in range(_RATE_STEPS):
        middle = (inside + outside) / 2
        if fits(middle):
            inside = middle
        else:
            outside = middle
    return outside


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


def _times_log(count: int, chance: float) -> float:
    if count == 0:
        return 0.0
    return count * math.log(chance) if chance > 0 else -math.inf
