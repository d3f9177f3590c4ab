"""What a cell showed, and whether that is what is promised. Pure."""

from collections import Counter
from dataclasses import dataclass, field

HANG_S = 30.0
"""Every request and every change has its answer, or an error, within this time."""


@dataclass(slots=True)
class Tally:
    """What became of requests: `right`, `refused` (an error in words), `broken` (the connection
    ended), `wrong` (an answer that is not the model's), `hung` (none within HANG_S).
    `of_model`: the same by model."""

    counts: Counter[str] = field(default_factory=Counter)
    of_model: Counter[tuple[str, str]] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)

    def note(self, what: str, example: str = "") -> None:
        self.counts[what] += 1
        if example:
            self.examples.setdefault(what, example[:300])


@dataclass(frozen=True, slots=True)
class Outcome:
    """One cell's row. `lost`: acknowledged changes that were gone; `recovered_s`: until every
    model answered and a change was taken, None when that never came; `skipped`: why the fault
    cannot be injected here; `observed`: what was seen of the fault itself; `disturbed`: answers
    that were not right, of models that the fault did not hit."""

    cell: str
    right: int = 0
    refused: int = 0
    broken: int = 0
    wrong: int = 0
    hung: int = 0
    lost: int = 0
    recovered_s: float | None = None
    skipped: str = ""
    observed: str = ""
    problem: str = ""
    disturbed: int = 0


def verdict(outcome: Outcome, recover_s: float) -> str:
    """What is against the promise, "" for nothing."""
    if outcome.skipped:
        return ""
    told = []
    if outcome.problem:
        told.append(outcome.problem)
    for what in ("wrong", "hung", "lost", "disturbed"):
        if count := getattr(outcome, what):
            told.append(f"{count} {what}")
    if not outcome.observed:
        told.append("the fault was not seen to happen")
    if outcome.recovered_s is None:
        told.append("did not recover")
    elif outcome.recovered_s > recover_s:
        told.append(f"recovered after {outcome.recovered_s:.0f} s, promised {recover_s:.0f}")
    return ", ".join(told)
