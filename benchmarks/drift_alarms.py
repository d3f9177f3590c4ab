"""How often drift is told where there is none, and how often it is found: the tables of
docs/drift.md, from seeded draws through the gateway's own counters and the control process's
verdict.

    python -m benchmarks.drift_alarms [--days 50] [--times 200]
"""

import argparse
from collections import deque
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from control.drift.categories import category_counts
from control.drift.labels import compare_labels
from control.drift.merge import merged
from control.drift.points import FeatureCounts, VersionDrift
from control.drift.terms import LOOKS, DriftTerms
from control.drift.verdict import DriftAlarm, DriftState, judge_drift, next_alarm
from server.drift.counting import NumericCounter

FEATURES, REFERENCE = 16, 20_000
PER_DAY = 24 * LOOKS
"""Verdicts a day with the usual window of an hour."""

Floats = npt.NDArray[np.float32]
Draw = Callable[[np.random.Generator, int], Floats]
"""So many rows of all features."""


def independent(drawn: np.random.Generator, rows: int) -> Floats:
    found: Floats = drawn.normal(size=(rows, FEATURES)).astype(np.float32)
    return found


def alike(drawn: np.random.Generator, rows: int) -> Floats:
    """Eight rows of a request share half of their variance."""
    requests = -(-rows // 8)
    common = np.repeat(drawn.normal(size=(requests, FEATURES)), 8, axis=0)[:rows]
    own = drawn.normal(size=(rows, FEATURES))
    found: Floats = ((common + own) / np.sqrt(2)).astype(np.float32)
    return found


def shifted(by: float) -> Draw:
    """The first feature by so many standard deviations."""

    def draw(drawn: np.random.Generator, rows: int) -> Floats:
        found = independent(drawn, rows)
        found[:, 0] += by
        return found

    return draw


def counts(rows: Floats) -> VersionDrift:
    features = []
    for index in range(rows.shape[1]):
        counter = NumericCounter()
        counter.add(rows[:, index])
        features.append(FeatureCounts(f"x[{index}]", "input", counter.counts()))
    return VersionDrift("m", 1, len(rows), tuple(features))


def quarters(drawn: np.random.Generator, draw: Draw, rows: int) -> Iterator[VersionDrift]:
    """Windows as they are judged: each the last four quarters."""
    kept: deque[VersionDrift] = deque(maxlen=LOOKS)
    while True:
        kept.append(counts(draw(drawn, rows // LOOKS)))
        if len(kept) == LOOKS:
            yield merged(kept)


def alarms_a_day(draw: Draw, rows: int, days: int, seed: int) -> float:
    drawn = np.random.default_rng(seed)
    terms = DriftTerms()
    told, looks = 0, days * PER_DAY
    windows = quarters(drawn, draw, rows)
    alarm, reference = DriftAlarm(), counts(draw(drawn, REFERENCE))
    for look in range(looks):
        if look % PER_DAY == 0:
            reference = counts(draw(drawn, REFERENCE))
        following = next_alarm(alarm, judge_drift(reference, next(windows), terms).state, terms)
        told += following.raised and not alarm.raised
        alarm = following
    return told / days


def found_share(draw: Draw, rows: int, times: int, seed: int) -> float:
    """Of single verdicts on a whole window of it."""
    drawn = np.random.default_rng(seed)
    terms = DriftTerms()
    hits = 0
    for _ in range(times):
        reference = counts(independent(drawn, REFERENCE))
        verdict = judge_drift(reference, counts(draw(drawn, rows)), terms)
        hits += verdict.state is DriftState.DRIFTED
    return hits / times


CLASSES = np.full(10, 0.1)
LIMIT, STEPS, LOOKS_OF_STEP, LEAST = 0.1, 5, 10, 500


def moved(share: float) -> npt.NDArray[np.float64]:
    """So much of all answers go to class 0 that went to others before."""
    found = CLASSES * (1 - share)
    found[0] += share
    return found


def rolled_back_share(candidate: npt.NDArray[np.float64], rows: int, times: int) -> float:
    """Of rollouts of five steps, each looked at ten times while `rows` labels come in, whose
    `label_drift` of 0.1 is surely passed."""
    drawn = np.random.default_rng(7)
    return sum(_is_rolled_back(drawn, candidate, rows) for _ in range(times)) / times


def _is_rolled_back(
    drawn: np.random.Generator, candidate: npt.NDArray[np.float64], rows: int
) -> bool:
    for _ in range(STEPS):
        ours, theirs = np.zeros(10, int), np.zeros(10, int)
        for _ in range(LOOKS_OF_STEP):
            ours += drawn.multinomial(rows // LOOKS_OF_STEP, CLASSES)
            theirs += drawn.multinomial(rows // LOOKS_OF_STEP, candidate)
            found = compare_labels(_labels(1, ours), _labels(2, theirs)).found
            if found is not None and theirs.sum() >= LEAST and found.psi_lower > LIMIT:
                return True
    return False


def _labels(version: int, of: npt.NDArray[np.int_]) -> VersionDrift:
    named = {str(name): int(count) for name, count in enumerate(of) if count}
    return VersionDrift("m", version, 0, (FeatureCounts("y", "label", category_counts(named)),))


SIZES = (500, 1_000, 5_000, 20_000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=50)
    parser.add_argument("--times", type=int, default=200)
    given = parser.parse_args()
    print(f"| false alarms a day | {' | '.join(f'{size:,}' for size in SIZES)} |")
    for name, draw in (("independent rows", independent), ("eight alike rows a request", alike)):
        row = [alarms_a_day(draw, size, given.days, 1) for size in SIZES]
        print(f"| {name} | {' | '.join(f'{one:.3f}' for one in row)} |", flush=True)
    for by in (0.1, 0.25, 0.5, 0.75, 1.0):
        row = [found_share(shifted(by), size, given.times, 2) for size in SIZES]
        print(
            f"| found: shift of {by:g} σ | {' | '.join(f'{one:.1%}' for one in row)} |", flush=True
        )
    for share in (0.0, 0.1, 0.2, 0.3, 0.4):
        psi = float(np.sum((moved(share) - CLASSES) * np.log(moved(share) / CLASSES)))
        row = [rolled_back_share(moved(share), size, given.times) for size in SIZES]
        print(
            f"| rolled back: {share:.0%} to one class (PSI {psi:.2f}) | "
            f"{' | '.join(f'{one:.1%}' for one in row)} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
