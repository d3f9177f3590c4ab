"""What an operator chooses of a watched model: how much is looked at, and what is drift. Pure.

`control.drift.service` keeps them as rows.
"""

from dataclasses import dataclass
from typing import Literal

MOST_MODELS = 16
"""Watched at once."""

ReferenceKind = Literal["none", "window", "profile", "pushed"]


@dataclass(frozen=True, slots=True)
class DriftTerms:
    """`percent` of a model's requests, and no more than `per_s` a second of each version on each
    server, are looked at. The last `window_s` are held against the reference: a feature has drifted
    when its PSI, less what chance makes of it, is above `psi`, or its KS distance above `ks`, and
    that test's p-value, by Holm's correction for all features of the version, is at most `alpha`;
    with fewer than
    `min_sample` values on either side nothing is said. `labels`: the output that has the labels or
    the scores of classes, "" to find it out, "-" for none. `names`: keep the values of strings,
    instead of hashes of them."""

    percent: float = 100.0
    per_s: float = 20.0
    window_s: int = 3600
    psi: float = 0.2
    ks: float = 0.15
    alpha: float = 0.001
    min_sample: int = 500
    labels: str = ""
    names: bool = False


LOOKS = 4
"""Verdicts in the time of one window; each is of the whole window before it."""


def due_every_s(terms: DriftTerms) -> float:
    return terms.window_s / LOOKS
