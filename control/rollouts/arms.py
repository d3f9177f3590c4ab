"""What the arms of a rollout have answered: counts that only grow, and differences of them. Pure.

A request counts when its reply ended: answered, failed by the server, refused by a full queue or
a version that is not ready. What the client got wrong or cancelled does not count.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import sub
from typing import Any

from control.statistics.histogram import Histogram


@dataclass(frozen=True, slots=True)
class OutcomeCounts:
    """`errors`: of `requests`. `not_a_number`: answers with a NaN or an infinity in an output;
    `empty`: answers without a single element."""

    requests: int = 0
    errors: int = 0
    not_a_number: int = 0
    empty: int = 0

    def __add__(self, other: "OutcomeCounts") -> "OutcomeCounts":
        return OutcomeCounts(
            self.requests + other.requests,
            self.errors + other.errors,
            self.not_a_number + other.not_a_number,
            self.empty + other.empty,
        )

    def since(self, earlier: "OutcomeCounts") -> "OutcomeCounts":
        """What came after `earlier`, never less than nothing: a server that was forgotten takes
        its counts along."""
        requests = max(0, self.requests - earlier.requests)
        return OutcomeCounts(
            requests,
            min(requests, max(0, self.errors - earlier.errors)),
            min(requests, max(0, self.not_a_number - earlier.not_a_number)),
            min(requests, max(0, self.empty - earlier.empty)),
        )

    def as_list(self) -> list[int]:
        return [self.requests, self.errors, self.not_a_number, self.empty]


@dataclass(frozen=True, slots=True)
class ArmTotals:
    """One arm. `latency`: of the requests that were answered, `compute`: the part of it since their
    execution began, of those that were executed; nobody adds to them any more."""

    counts: OutcomeCounts = OutcomeCounts()
    latency: Histogram = field(default_factory=Histogram, compare=False)
    compute: Histogram = field(default_factory=Histogram, compare=False)

    def __add__(self, other: "ArmTotals") -> "ArmTotals":
        return ArmTotals(
            self.counts + other.counts,
            self.latency.merged(other.latency),
            self.compute.merged(other.compute),
        )

    def since(self, earlier: "ArmTotals") -> "ArmTotals":
        return ArmTotals(
            self.counts.since(earlier.counts),
            latency_since(self.latency, earlier.latency),
            latency_since(self.compute, earlier.compute),
        )

    def as_list(self) -> list[Any]:
        return [*self.counts.as_list(), self.latency.as_list(), self.compute.as_list()]

    @classmethod
    def from_list(cls, packed: Sequence[Any]) -> "ArmTotals":
        """An older build counted no `compute`. Raises ValueError or TypeError for what `as_list`
        cannot have made."""
        counts, histograms = packed[:4], packed[4:]
        return cls(OutcomeCounts(*counts), *map(Histogram.from_list, histograms))


@dataclass(frozen=True, slots=True)
class RolloutTotals:
    """`mirrored`: copies that the candidate answered, beside what `control` answered."""

    control: ArmTotals = field(default_factory=ArmTotals)
    candidate: ArmTotals = field(default_factory=ArmTotals)
    mirrored: ArmTotals = field(default_factory=ArmTotals)

    def __add__(self, other: "RolloutTotals") -> "RolloutTotals":
        return RolloutTotals(
            self.control + other.control,
            self.candidate + other.candidate,
            self.mirrored + other.mirrored,
        )

    def since(self, earlier: "RolloutTotals") -> "RolloutTotals":
        return RolloutTotals(
            self.control.since(earlier.control),
            self.candidate.since(earlier.candidate),
            self.mirrored.since(earlier.mirrored),
        )

    def as_list(self) -> list[Any]:
        return [self.control.as_list(), self.candidate.as_list(), self.mirrored.as_list()]

    @classmethod
    def from_list(cls, packed: Sequence[Any]) -> "RolloutTotals":
        return cls(*(ArmTotals.from_list(one) for one in packed))


def latency_since(later: Histogram, earlier: Histogram) -> Histogram:
    """What `later` has more; `later` itself when that is all."""
    if not earlier.n:
        return later
    left = Histogram()
    left.counts = [*map(sub, later.counts, earlier.counts)]
    if min(left.counts) < 0:
        left.counts = [max(0, count) for count in left.counts]
    left.n = sum(left.counts)
    return left


@dataclass(frozen=True, slots=True)
class Stratum:
    """Both arms over a time in which no weight changed."""

    candidate: OutcomeCounts
    control: OutcomeCounts


@dataclass(frozen=True, slots=True)
class RateComparison:
    """How often something bad happened in two arms, as whole numbers."""

    bad_candidate: int
    n_candidate: int
    bad_control: int
    n_control: int

    @property
    def candidate(self) -> float:
        """The candidate's rate."""
        return self.bad_candidate / self.n_candidate

    @property
    def control(self) -> float:
        return self.bad_control / self.n_control


def compared(strata: Iterable[Stratum], metric: str) -> RateComparison | None:
    """The candidate, and the control as it would have been with the candidate's share of each
    stratum; None when no stratum has both.

    Adding the arms up would compare different times: a bad hour at a weight of 1 % would count
    against the control, at 50 % against the candidate.
    """
    both = [one for one in strata if one.candidate.requests and one.control.requests]
    if not both:
        return None
    n = sum(one.candidate.requests for one in both)
    rate, variance = 0.0, 0.0
    for one in both:
        share = one.candidate.requests / n
        rate += share * getattr(one.control, metric) / one.control.requests
        variance += share * share / one.control.requests
    effective = max(1, round(1 / variance))
    bad = sum(getattr(one.candidate, metric) for one in both)
    return RateComparison(bad, n, min(effective, round(rate * effective)), effective)
