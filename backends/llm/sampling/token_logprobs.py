"""A token's likelihood as it is told to callers; no torch, so that every process may know it."""

from msgspec import Struct


class TokenLogprobs(Struct, frozen=True, array_like=True):
    """A token's natural log-probability and rank (0 for the likeliest), and the likeliest tokens
    with theirs, best first."""

    logprob: float
    rank: int
    likeliest: tuple[tuple[int, float], ...]
