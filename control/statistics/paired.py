"""The interval of a mean of few values whose spread is not known, however often one looks. Pure.

Each value compares two arms in the same stretch of time, so that what befell both of them, a burst
of other work, is in neither: only what differs between the arms spreads the values.
"""

import math

from control.statistics.sequential import Interval, Moments

PRIOR = 1.0
"""Variance of the effects that the mixture expects, in variances of one value."""


def mean_interval(values: Moments, alpha: float, least_sd: float = 0.0) -> Interval:
    """For the mean of a growing number of values, at every number of them; infinite below four.

    Exact for normal values: the mixture of t-statistics over effects is a martingale whatever the
    values' variance is (Wang and Ramdas, "Anytime-valid t-tests and confidence sequences", 2024),
    so that the truth is ever left out with a probability of at most `alpha`. For one side alone at
    5 %, ask for `alpha=0.1`. `least_sd`: how coarse a value is. Raises ValueError for an alpha out
    of range.
    """
    if not 0 < alpha < 1:
        raise ValueError(f"alpha must be between 0 and 1, got {alpha}")
    n = values.n
    if n < 2:
        return Interval(-math.inf, math.inf)
    grown = 1 + n * PRIOR
    limit = (math.sqrt(grown) / alpha) ** (2 / n)
    if limit >= grown:
        return Interval(-math.inf, math.inf)
    squared_t = (n - 1) * (limit - 1) / (1 - limit / grown)
    half = math.sqrt(squared_t * max(values.variance, least_sd * least_sd) / n)
    return Interval(values.mean - half, values.mean + half)
