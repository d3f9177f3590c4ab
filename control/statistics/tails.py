"""Tail probabilities of the χ² and the Kolmogorov distribution. Pure.

Within 1e-9 of scipy's `chi2.sf` and `kolmogorov`; the tests have its values.
"""

import math

_MOST_TERMS = 1_000
_TINY = 1e-300
_PRECISION = 1e-14


def chi2_tail(value: float, degrees: int) -> float:
    """The probability that χ² with so many degrees of freedom is above `value`; 1 for none.

    The incomplete gamma function Q(degrees/2, value/2): a series on the left of its middle, a
    continued fraction (Lentz) on the right.
    """
    if degrees <= 0 or value <= 0:
        return 1.0
    a, x = degrees / 2, value / 2
    scale = math.exp(a * math.log(x) - x - math.lgamma(a))
    if x < a + 1:
        return max(0.0, 1.0 - scale * _lower_series(a, x))
    return scale * _upper_fraction(a, x)


def _lower_series(a: float, x: float) -> float:
    term = total = 1 / a
    for k in range(1, _MOST_TERMS):
        term *= x / (a + k)
        total += term
        if term < total * _PRECISION:
            break
    return total


def _upper_fraction(a: float, x: float) -> float:
    b = x + 1 - a
    c, d = 1 / _TINY, 1 / b
    found = d
    for k in range(1, _MOST_TERMS):
        an = -k * (k - a)
        b += 2
        d = 1 / _nonzero(an * d + b)
        c = _nonzero(b + an / c)
        found *= d * c
        if abs(d * c - 1) < _PRECISION:
            break
    return found


def _nonzero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY


def kolmogorov_tail(value: float) -> float:
    """The probability that the supremum of a Brownian bridge is above `value`."""
    if value <= 0:
        return 1.0
    if value < 1.0:  # the alternating series converges slowly here, its dual at once
        dual = sum(math.exp(-(((2 * k - 1) * math.pi / value) ** 2) / 8) for k in range(1, 5))
        return max(0.0, 1.0 - math.sqrt(2 * math.pi) / value * dual)
    return 2 * sum((-1.0) ** (k - 1) * math.exp(-2 * (k * value) ** 2) for k in range(1, 20))


def two_sample_tail(distance: float, n: int, m: int) -> float:
    """The p-value of a Kolmogorov-Smirnov `distance` between samples of `n` and `m` values, by
    Stephens' approximation. Above the true one where values are equal to one another, as those of
    one bucket are."""
    if n <= 0 or m <= 0:
        return 1.0
    root = math.sqrt(n * m / (n + m))
    return min(1.0, kolmogorov_tail((root + 0.12 + 0.11 / root) * distance))
