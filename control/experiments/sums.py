"""What is kept of an experiment's values, arm by arm: enough to compare them. Pure."""

from dataclasses import dataclass

from control.statistics.histogram import Histogram
from control.statistics.sequential import Moments

UNITS = ""
"""The metric under which exposures are counted."""

Key = tuple[str, str]
"""Arm and metric."""


@dataclass(slots=True)
class Sums:
    """Of one metric in one arm. `n`: values; `ones`: those that were 1. Under `UNITS`: units, and
    those that crossed to another arm."""

    n: int
    ones: int
    moments: Moments
    histogram: Histogram
