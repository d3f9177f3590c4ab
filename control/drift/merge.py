"""Windows of one version merged into one distribution a feature. Pure."""

from collections.abc import Iterable, Sequence

from control.drift.categories import category_counts, merged_categories
from control.drift.numeric import buckets_of, merged_numeric, numeric_counts, size_of
from control.drift.points import (
    MOST_FEATURES,
    CategoryCounts,
    Distribution,
    FeatureCounts,
    FeatureRole,
    NumericCounts,
    VersionDrift,
)


def merged(several: Iterable[VersionDrift], model: str = "", version: int = 0) -> VersionDrift:
    """All of them together, under the first one's name unless another is given. Features are told
    apart by name, role and kind; of one that was a number before and is a name now, the kind that
    came last counts."""
    parts = list(several)
    if not parts:
        return VersionDrift(model, version, 0, ())
    found: dict[tuple[str, FeatureRole], list[Distribution]] = {}
    for part in parts:
        for one in part.features:
            found.setdefault((one.name, one.role), []).append(one.counts)
    features = [
        FeatureCounts(name, role, merged_counts(many)) for (name, role), many in found.items()
    ]
    return VersionDrift(
        model or parts[0].model,
        version or parts[0].version,
        sum(part.requests for part in parts),
        tuple(features[:MOST_FEATURES]),
        max(part.left_out for part in parts),
    )


def merged_counts(several: Sequence[Distribution]) -> Distribution:
    last = several[-1]
    if isinstance(last, NumericCounts):
        return merged_numeric([one for one in several if isinstance(one, NumericCounts)])
    return merged_categories([one for one in several if isinstance(one, CategoryCounts)])


def observations(counts: Distribution) -> int:
    """How many values it is of."""
    if isinstance(counts, NumericCounts):
        return size_of(counts)
    return sum(counts.counts.values())


def checked(counts: Distribution) -> Distribution:
    """In its normal form. Raises ValueError for what none of our functions makes."""
    if isinstance(counts, NumericCounts):
        if counts.not_finite < 0:
            raise ValueError("a count of values that are no numbers is below 0")
        return numeric_counts(buckets_of(counts), counts.shift, counts.not_finite)
    if any(count < 1 for count in counts.counts.values()):
        raise ValueError("a count of a value is below 1")
    return category_counts(counts.counts, counts.folded)
