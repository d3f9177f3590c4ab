"""Experiments of one namespace share no unit: each holds a range of its 10,000 buckets. Pure."""

from collections.abc import Iterable

from control.routes.buckets import BUCKETS, bucket


def free_range(size: int, taken: Iterable[range]) -> range | None:
    """The first `size` buckets in a row that none of `taken` has; None if there are none."""
    start = 0
    for held in sorted(taken, key=lambda one: one.start):
        if held.start - start >= size:
            break
        start = max(start, held.stop)
    return range(start, start + size) if start + size <= BUCKETS else None


def takes_part(namespace: str, held: range, unit: str) -> bool:
    """Whether a unit may be exposed to the experiment that holds this range; without a namespace
    every unit may."""
    return not namespace or bucket(f"namespace:{namespace}", unit) in held
