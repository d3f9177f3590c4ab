"""Sample-ratio mismatch: whether arms got the share of units they were meant to get. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

SUSPICIOUS = 1e-3
FEWEST_EXPECTED = 8


@dataclass(frozen=True, slots=True)
class SampleRatio:
    """`p_value` of Pearson's chi-square; None while an arm expects fewer than 8 units.

    `mismatch`: below 0.001, so that comparing the arms means nothing until the cause is found.
    """

    p_value: float | None
    mismatch: bool


def sample_ratio(units: Mapping[str, int], shares: Mapping[str, float]) -> SampleRatio:
    """`units` seen per arm against `shares` wanted, in any unit; an arm without a share is left
    out. Raises ValueError for a negative share."""
    if any(share < 0 for share in shares.values()):
        raise ValueError(f"shares cannot be negative: {dict(shares)}")
    arms = [arm for arm, share in shares.items() if share > 0]
    total, whole = sum(units.get(arm, 0) for arm in arms), sum(shares[arm] for arm in arms)
    if len(arms) < 2:
        return SampleRatio(None, mismatch=False)
    expected = {arm: total * shares[arm] / whole for arm in arms}
    if min(expected.values()) < FEWEST_EXPECTED:
        return SampleRatio(None, mismatch=False)
    from scipy.special import chdtrc

    off = sum((units.get(arm, 0) - expected[arm]) ** 2 / expected[arm] for arm in arms)
    p_value = float(chdtrc(len(arms) - 1, off))
    return SampleRatio(p_value, mismatch=p_value < SUSPICIOUS)
