"""The labels that two versions give: how far apart, and whether that is certain. Pure."""

from dataclasses import dataclass

from control.drift.comparison import DriftComparison, compare
from control.drift.points import Distribution, VersionDrift


@dataclass(frozen=True, slots=True)
class LabelComparison:
    """Of a rollout's two versions: `found` is None while they have not both given labels, for the
    reason in `missing`."""

    found: DriftComparison | None
    missing: str = ""


def compare_labels(stable: VersionDrift, candidate: VersionDrift) -> LabelComparison:
    """Of requests that both answered in the same time."""
    ours, theirs = _labels(stable), _labels(candidate)
    if ours is None or theirs is None:
        lacks = stable if ours is None else candidate
        return LabelComparison(None, f"version {lacks.version} has given no label yet")
    found = compare(ours, theirs)
    if found is None:
        return LabelComparison(None, "the two versions give labels of different kinds")
    return LabelComparison(found)


def _labels(counts: VersionDrift) -> Distribution | None:
    return next((one.counts for one in counts.features if one.role == "label"), None)
