"""The settings that a profile chooses among, and which result is better. Pure."""

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

from control.jobs.specs.profile import ProfileSpec


class TrialSettings(NamedTuple):
    """`batch` 0: the model has no batches; `threads` 0: as the backend has them by itself."""

    instances: int
    batch: int
    delay_us: int
    threads: int


class TrialMeasurement(NamedTuple):
    """What clients saw; latencies in milliseconds. `memory`: bytes resident in the server.

    cpu_ms: processor time of the server for each answer, which other work on the machine changes
        little; it decides nothing.
    missed: requests that were due and not sent, because answers came too late.
    """

    per_second: float
    p50_ms: float
    p99_ms: float
    errors: int
    memory: int
    cpu_ms: float = 0.0
    missed: int = 0


def grid(spec: ProfileSpec, *, batches: bool, threads: bool, rows: int = 1) -> list[TrialSettings]:
    """Every combination that differs from the others and takes a request of so many rows: without
    batches nothing is waited for."""
    sizes = spec.batch_sizes if batches else (0,)
    counts = spec.threads if threads else (0,)
    every = product(spec.instances, sizes, spec.delays_us, counts)
    plain = (
        TrialSettings(count, size, delay if size > 1 else 0, cores)
        for count, size, delay, cores in every
        if size == 0 or size >= rows
    )
    return list(dict.fromkeys(plain))


def score(spec: ProfileSpec, sample: TrialMeasurement) -> float:
    """Larger is better; below zero where the bound is missed, by how many times, and where requests
    were not sent."""
    if sample.errors or not sample.per_second:
        return float("-inf")
    if sample.missed:
        return -1.0 - sample.missed
    if spec.goal == "throughput":
        missed = spec.latency_ms and sample.p99_ms > spec.latency_ms
        return -sample.p99_ms / spec.latency_ms if missed else sample.per_second
    missed = sample.per_second < spec.per_second
    return -spec.per_second / sample.per_second if missed else 1e3 / sample.p99_ms


def pareto(samples: Sequence[TrialMeasurement]) -> list[int]:
    """Indices of those that no other beats both in requests a second and in the 99th percentile."""
    return [
        at
        for at, one in enumerate(samples)
        if not any(
            other.per_second >= one.per_second
            and other.p99_ms <= one.p99_ms
            and (other.per_second, other.p99_ms) != (one.per_second, one.p99_ms)
            for other in samples
        )
    ]


def measurements(spec: ProfileSpec, combinations: int, finalists: int) -> int:
    """How many combinations a search tries; the finalists are measured once more, and the settings
    in force twice."""
    if spec.method == "grid":
        return combinations
    return max(min(4, combinations), int(spec.share * combinations) - finalists - 2)
