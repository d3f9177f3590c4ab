"""Holm's correction: many comparisons, one chance of alpha to call any of them different. Pure."""

from collections.abc import Hashable, Mapping
from typing import TypeVar

K = TypeVar("K", bound=Hashable)


def adjusted(p_values: Mapping[K, float]) -> dict[K, float]:
    """Each p-value raised so that "at most alpha" may be asked of all of them together."""
    ordered = sorted(p_values, key=lambda key: p_values[key])
    raised, least = {}, 0.0
    for place, key in enumerate(ordered):
        least = max(least, min(1.0, p_values[key] * (len(ordered) - place)))
        raised[key] = least
    return {key: raised[key] for key in p_values}
