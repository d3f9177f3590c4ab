"""What a soak promises: nothing wrong, lost or hung, and nothing that grows. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.soak.rows import Run, Sample, Weight, totals

HANG_S = 20.0
JUDGED_S = 600.0
"""A shorter run is still warming up in its second quarter: its growth is shown and not judged."""

BOUNDS = {"memory": 16 * 1024, "descriptors": 4.0, "threads": 2.0, "shared memory": 2.0}
"""What may be added between the second and the last quarter, whose middles are half the run apart.

Memory (RSS, in KiB) of one process; its PSS would grow whenever another process ends that has the
same libraries mapped. Over the 30 minutes and some 20,000 requests between the quarters of an hour
that is 0.8 KiB a request, less than any request, answer or error that would be kept; what the
allocator and SQLite's caches move stays below. Descriptors and threads: less than what the requests
of the moment differ by. Shared memory: the pieces that all processes have open together; one worker
more has two.
"""


@dataclass(frozen=True, slots=True)
class Growth:
    """Medians over the second and the last quarter, and what may be added between them."""

    what: str
    role: str
    before: float
    after: float
    bound: float

    @property
    def is_flat(self) -> bool:
        return self.after - self.before <= self.bound


def growth(samples: Sequence[Sample]) -> list[Growth]:
    """Of each role's median process, of the shared memory, and of the number of processes.

    Roles whose processes come and go (git, checkers) are judged by how many there are."""
    if len(samples) < 8:
        return []
    quarter = len(samples) // 4
    before, after = samples[quarter : 2 * quarter], samples[-quarter:]
    kept = [role for role in _roles(samples) if _is_always_there(samples, role)]
    found = [_of(what, role, take, before, after) for role in kept for what, take in _TAKEN.items()]
    for what, count in (
        ("shared memory", lambda one: float(one.shm)),
        ("processes", lambda one: float(len(one.processes))),
    ):
        bound = BOUNDS.get(what, BOUNDS["threads"])
        found.append(Growth(what, "all", _middle(map(count, before)), _middle(map(count, after)),
                            bound))  # fmt: skip
    return found


def problems(run: Run) -> list[str]:
    """What is against the promise; empty for a good run."""
    found = []
    for kind, outcomes in sorted(totals(run.minutes).items()):
        bad = [f"{outcomes[it]} {it}" for it in ("wrong", "lost", "hung") if outcomes.get(it)]
        if bad:
            found.append(f"{kind}: {', '.join(bad)}")
    if run.samples and run.samples[-1].at >= JUDGED_S:
        found += [_grew(one) for one in growth(run.samples) if not one.is_flat]
    found += [f"{one['kind']}: {one['failed']}" for one in run.events if one.get("failed")]
    if run.end.get("problem"):
        found.append(str(run.end["problem"]))
    if not run.end:
        found.append("the run has no end: it was interrupted, or goes on")
    return found


def shown(one: Growth) -> tuple[str, str]:
    """Both figures with their unit."""
    if one.what == "memory":
        return f"{one.before / 1024:.1f} MiB", f"{one.after / 1024:.1f} MiB"
    return f"{one.before:g}", f"{one.after:g}"


def _grew(one: Growth) -> str:
    before, after = shown(one)
    return f"{one.what} of {one.role} grew from {before} to {after}"


_TAKEN: dict[str, Callable[[Weight], float]] = {
    "memory": lambda one: one.rss,
    "descriptors": lambda one: one.files,
    "threads": lambda one: one.threads,
}


def _of(
    what: str,
    role: str,
    take: Callable[[Weight], float],
    before: Sequence[Sample],
    after: Sequence[Sample],
) -> Growth:
    def middle(samples: Sequence[Sample]) -> float:
        return _middle(take(it) for one in samples for it in one.processes if it.role == role)

    return Growth(what, role, middle(before), middle(after), BOUNDS[what])


def _roles(samples: Sequence[Sample]) -> list[str]:
    return sorted({it.role for one in samples for it in one.processes})


def _is_always_there(samples: Sequence[Sample], role: str) -> bool:
    there = sum(any(it.role == role for it in one.processes) for one in samples)
    return there > 0.9 * len(samples)


def _middle(numbers: object) -> float:
    found = list(numbers)  # type: ignore[call-overload]
    return median(found) if found else 0.0
