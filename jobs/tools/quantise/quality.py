"""What remains of a network's quality, against the floor of the spec. Pure."""

from typing import NamedTuple

from jobs.tools.measure.comparison import Array, Kind, accuracy, agreement


class RemainingQuality(NamedTuple):
    """before and after: accuracy of source and result where there are labels, else None and the
    agreement of the result with the source. lowest: what `after` must be at least."""

    name: str
    before: float | None
    after: float
    lowest: float

    @property
    def enough(self) -> bool:
        """Whether the floor is kept; not a number is not enough."""
        return self.after >= self.lowest

    def sentence(self, rows: int) -> str:
        """What was found, and the bound."""
        against = "" if self.before is None else f" ({self.before:.6g} before)"
        return (
            f"{self.name} on {rows} held-out rows is {self.after:.6g}{against}; "
            f"at least {self.lowest:.6g} must remain"
        )


def remaining_quality(
    source: Array, result: Array, labels: Array | None, kind: Kind, floor: float
) -> RemainingQuality:
    """Judge a result: by accuracy where there are labels, else by agreement."""
    if labels is not None and kind == "classes":
        before = accuracy(source, labels)
        # Floats: an accuracy that may fall by a point and falls by one row in a hundred is enough.
        lowest = before - (1 - floor) - 1e-9
        return RemainingQuality("accuracy", before, accuracy(result, labels, source), lowest)
    name = "agreement of the class" if kind == "classes" else "R2 of the values"
    return RemainingQuality(name, None, agreement(source, result, kind), floor)
