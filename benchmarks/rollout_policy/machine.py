"""Two versions on one machine whose cores others use as well: drawn requests, seeded. Pure.

A request waits in a queue and is then computed. The queue, and what a computation waits for its
turn on a core, are the machine's: shared by both versions, and longer in bursts. The rest of the
computing time is the version's own. Each version also has noise of its own, of its own processes.
"""

import math
from dataclasses import dataclass, field

import numpy as np

from control.rollouts.arms import ArmTotals, OutcomeCounts, RolloutTotals
from control.rollouts.plan import BUCKETS as WEIGHTS
from control.statistics.histogram import EDGES, Histogram

OWN_S, OWN_SPREAD = 0.015, 0.15
"""What a version computes itself: the median, and sigma of its log-normal."""


@dataclass(frozen=True, slots=True)
class LoadLevel:
    """How busy the machine is. `queue_s` and `turn_s`: means of what a request waits in the queue,
    and its computation for a core; both are `burst` times as long for `burst_s` every
    `burst_every_s`, on average. `drift`: sigma of the log of what multiplies them from second to
    second; `apart`: of what does so for each version by itself."""

    name: str
    queue_s: float
    turn_s: float
    burst: float
    burst_s: float
    burst_every_s: float
    drift: float
    apart: float


LEVELS = (
    LoadLevel("quiet", 0.0005, 0.0005, 4.0, 1.0, 60.0, 0.1, 0.05),
    LoadLevel("busy", 0.010, 0.004, 4.0, 2.0, 20.0, 0.3, 0.1),
    LoadLevel("3 × overloaded", 0.080, 0.025, 4.0, 3.0, 15.0, 0.5, 0.2),
)


@dataclass(frozen=True, slots=True)
class VersionBehaviour:
    """`slower`: times the computing time; `error_rate`: of its requests."""

    slower: float = 1.0
    error_rate: float = 0.005


STEADY = 0.8
"""How much of a second's drift is that of the second before."""


@dataclass(slots=True)
class SharedMachine:
    """`rate_per_s`: requests for both versions together."""

    level: LoadLevel
    stable: VersionBehaviour
    candidate: VersionBehaviour
    rate_per_s: float
    random: np.random.Generator
    _drifts: np.ndarray = field(default_factory=lambda: np.zeros(3))
    _burst_until: float = 0.0
    _now: float = 0.0

    def after(self, arms: RolloutTotals, weight: int, mirror: int, tick_s: int) -> RolloutTotals:
        """The counts `tick_s` later. Copies are computed beside what is copied."""
        random = self.random
        longer = np.array([self._longer() for _ in range(tick_s)]).T
        total = int(random.poisson(self.rate_per_s * tick_s))
        tried = int(random.binomial(total, weight / WEIGHTS))
        copied = int(random.binomial(total, mirror / WEIGHTS))
        return RolloutTotals(
            self._more(arms.control, self.stable, total - tried, longer[0]),
            self._more(arms.candidate, self.candidate, tried, longer[1]),
            self._more(arms.mirrored, self.candidate, copied, longer[1]),
        )

    def _longer(self) -> list[float]:
        """How many times the means each version's requests wait in the next second."""
        level, random = self.level, self.random
        self._now += 1
        noise = random.standard_normal(3) * math.sqrt(1 - STEADY**2)
        self._drifts = STEADY * self._drifts + noise
        if self._now >= self._burst_until and random.random() < 1 / level.burst_every_s:
            self._burst_until = self._now + random.exponential(level.burst_s)
        bursting = level.burst if self._now < self._burst_until else 1.0
        shared = bursting * math.exp(level.drift * self._drifts[0])
        return [shared * math.exp(level.apart * one) for one in self._drifts[1:]]

    def _more(
        self, arm: ArmTotals, behaviour: VersionBehaviour, requests: int, longer: np.ndarray
    ) -> ArmTotals:
        """`longer`: of each second, over which the requests are spread."""
        if not requests:
            return arm
        random, level = self.random, self.level
        errors = int(random.binomial(requests, behaviour.error_rate))
        answered = requests - errors
        times = longer if len(longer) == 1 else longer[random.integers(len(longer), size=answered)]
        own = OWN_S * behaviour.slower * np.exp(OWN_SPREAD * random.standard_normal(answered))
        computed = own + random.exponential(level.turn_s, answered) * times
        taken = computed + random.exponential(level.queue_s, answered) * times
        return ArmTotals(
            arm.counts + OutcomeCounts(requests, errors),
            _with(arm.latency, taken),
            _with(arm.compute, computed),
        )


_EDGES = np.array(EDGES)


def _with(histogram: Histogram, seconds: np.ndarray) -> Histogram:
    made = Histogram()
    made.counts = histogram.counts.copy()
    buckets, counts = np.unique(_EDGES.searchsorted(seconds), return_counts=True)
    for bucket, count in zip(buckets.tolist(), counts.tolist(), strict=True):
        made.counts[bucket] += count
    made.n = histogram.n + len(seconds)
    return made
