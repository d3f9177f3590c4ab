"""Latencies as counts of buckets that grow by 19 %: small to keep, exact enough to draw. Pure."""

import math
from collections.abc import Iterable, Mapping

FIRST_MS = 0.5
STEP = 2**0.25

Counts = Mapping[str, int]
"""Bucket → requests; the bucket's number as text, as JSON keys are."""


def bucket_of(seconds: float) -> str:
    """The first bucket ends at half a millisecond, each further one 19 % later."""
    return str(max(0, math.ceil(math.log(max(seconds * 1000, 1e-9) / FIRST_MS, STEP) - 1e-9)))


def quantile_ms(counts: Counts, share: float) -> float:
    """The end of the bucket that this share of the requests does not pass; 0 for none."""
    wanted = share * sum(counts.values())
    passed = 0
    for bucket in sorted(counts, key=int):
        passed += counts[bucket]
        if passed >= wanted:
            return FIRST_MS * STEP ** int(bucket)
    return 0.0


def merged(all_counts: Iterable[Counts]) -> dict[str, int]:
    found: dict[str, int] = {}
    for counts in all_counts:
        for bucket, count in counts.items():
            found[bucket] = found.get(bucket, 0) + count
    return found
