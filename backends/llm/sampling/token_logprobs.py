"""A token's likelihood as it is told to callers; no torch, so that every process may know it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """A token's natural log-probability and rank (0 for the likeliest), and the likeliest tokens
    with theirs, best first."""

    logprob: float
    rank: int
    likeliest: tuple[tuple[int, float], ...]
