"""Histograms of numbers whose buckets fit the data, merged without loss. Pure.

float32 numbers in their order are integers; a bucket is a run of 2**shift of them, and `shift` the
least with which no more than MOST_BUCKETS are in use. Buckets of a coarser shift are whole buckets
of a finer one, so it does not matter whether one merges first or coarsens first: merging is exact,
associative and commutative. Where the values are far from zero buckets are as fine as the values
lie apart; over many powers of two a bucket is an eighth of an octave or finer.
"""

import math
import struct
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from control.drift.points import NumericCounts

MOST_BUCKETS = 512
"""In use, of one feature; every float32 fits with a shift of 23."""

_FLOAT32 = struct.Struct("<f")
_INT32 = struct.Struct("<i")
_LARGEST = 3.4028234663852886e38

Buckets = Mapping[int, int]
"""The number of a bucket → how many values lay in it."""


def key_of(value: float) -> int:
    """The place of a finite number among all float32; neighbours differ by one."""
    (bits,) = _INT32.unpack(_FLOAT32.pack(max(-_LARGEST, min(_LARGEST, value))))
    return int(bits) if bits >= 0 else -(int(bits) & 0x7FFFFFFF)


def value_of(key: int) -> float:
    """The float32 at this place; the largest for one beyond all."""
    bounded = max(-0x7F7FFFFF, min(0x7F7FFFFF, key))
    packed = bounded if bounded >= 0 else (-bounded | 0x80000000) - 2**32
    (value,) = _FLOAT32.unpack(_INT32.pack(packed))
    return float(value)


def edges_of(bucket: int, shift: int) -> tuple[float, float]:
    """From where to where it reaches: the least number of it and of the next."""
    return value_of(bucket << shift), value_of((bucket + 1) << shift)


def coarsened(buckets: Buckets, by: int) -> dict[int, int]:
    """The same with buckets 2**by as wide."""
    if not by:
        return dict(buckets)
    found: dict[int, int] = {}
    for bucket, count in buckets.items():
        coarse = bucket >> by
        found[coarse] = found.get(coarse, 0) + count
    return found


def fitted(buckets: Buckets, shift: int) -> tuple[dict[int, int], int]:
    """The buckets and their shift once no more than MOST_BUCKETS are in use."""
    found = dict(buckets)
    while len(found) > MOST_BUCKETS:
        found, shift = coarsened(found, 1), shift + 1
    return found, shift


def numeric_counts(buckets: Buckets, shift: int = 0, not_finite: int = 0) -> NumericCounts:
    """As it travels. Whole only if no count is 0."""
    found, shift = fitted(buckets, shift)
    packed: list[int] = []
    before = 0
    for bucket in sorted(found):
        packed += (bucket - before, found[bucket])
        before = bucket
    return NumericCounts(shift, tuple(packed), not_finite)


def counted(values: Iterable[float]) -> NumericCounts:
    """Of a sample."""
    finite, missing = [], 0
    for value in values:
        if math.isfinite(value):
            finite.append(key_of(value))
        else:
            missing += 1
    return numeric_counts(Counter(finite), 0, missing)


def buckets_of(counts: NumericCounts, shift: int = 0) -> dict[int, int]:
    """Its buckets, with this shift if it is coarser than its own. Raises ValueError for what
    `numeric_counts` cannot have made."""
    packed, bucket = counts.counts, 0
    if len(packed) % 2 or len(packed) > 2 * MOST_BUCKETS or not 0 <= counts.shift <= 31:
        raise ValueError(f"not a histogram of at most {MOST_BUCKETS} buckets")
    found = {}
    for step, count in zip(packed[::2], packed[1::2], strict=True):
        bucket += step
        found[bucket] = count
    if min(packed[1::2], default=1) < 1 or min(packed[2::2], default=1) < 1:
        raise ValueError("a histogram whose buckets are not in order, or empty")
    return coarsened(found, max(0, shift - counts.shift))


def merged_numeric(several: Sequence[NumericCounts]) -> NumericCounts:
    """All of them together."""
    if len(several) == 1:
        return several[0]
    shift = max((one.shift for one in several), default=0)
    total: dict[int, int] = {}
    for one in several:
        for bucket, count in buckets_of(one, shift).items():
            total[bucket] = total.get(bucket, 0) + count
    return numeric_counts(total, shift, sum(one.not_finite for one in several))


def size_of(counts: NumericCounts) -> int:
    """How many values it is of."""
    return sum(counts.counts[1::2]) + counts.not_finite
