"""Counts of values that are names: as many as are few enough to keep apart. Pure."""

import hashlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence

from control.drift.points import CategoryCounts

MOST_CATEGORIES = 100
"""Kept apart; of more, all are counted in groups."""

GROUPS = 64
_HASHED, _GROUP = "#", "group "
HASH_DIGITS = 8
_IS_HASH = re.compile(rf"#[0-9a-f]{{{HASH_DIGITS}}}")
_IS_GROUP = re.compile(rf"{_GROUP}[0-9]{{1,2}}")


def hashed(value: str) -> str:
    """A name in place of a value that is not to be kept: "#" and eight digits of its SHA-256. What
    is such a name stays as it is."""
    return value if _IS_HASH.fullmatch(value) else hash_of(value)


def hash_of(value: str) -> str:
    """The same of what a client has sent, whatever it looks like."""
    digest = hashlib.sha256(value.encode("utf-8", "surrogateescape")).hexdigest()
    return f"{_HASHED}{digest[:HASH_DIGITS]}"


def _group_of(value: str) -> str:
    """Of a value or of its hash: the same."""
    if _IS_GROUP.fullmatch(value):
        return value
    return f"{_GROUP}{int(hashed(value)[1:], 16) % GROUPS}"


def category_counts(counts: Mapping[str, int], folded: bool = False) -> CategoryCounts:
    """In order, and folded into groups where there are too many to be kept apart."""
    folded = folded or len(counts) > MOST_CATEGORIES
    return CategoryCounts(_folded(counts) if folded else dict(sorted(counts.items())), folded)


def _folded(counts: Mapping[str, int]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for value, count in counts.items():
        found[_group_of(value)] += count
    return dict(sorted(found.items()))


def merged_categories(several: Sequence[CategoryCounts]) -> CategoryCounts:
    """All of them together. Where one has names and another hashes of them, all are hashes."""
    if len(several) == 1:
        return several[0]
    return category_counts(*_total(several))


def comparable(
    one: CategoryCounts, other: CategoryCounts
) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """Both with names of one kind: as they are, as hashes, or as groups."""
    folded = one.folded or other.folded
    if folded:
        return _folded(one.counts), _folded(other.counts)
    if _has_hashes(one) != _has_hashes(other):
        return _hashed_all(one.counts), _hashed_all(other.counts)
    return one.counts, other.counts


def _total(several: Sequence[CategoryCounts]) -> tuple[Counter[str], bool]:
    total: Counter[str] = Counter()
    folded = any(one.folded for one in several)
    mixed = not folded and len({_has_hashes(one) for one in several if one.counts}) > 1
    for one in several:
        total.update(_hashed_all(one.counts) if mixed else one.counts)
    if folded:
        return Counter(_folded(total)), True
    return total, False


def _has_hashes(counts: CategoryCounts) -> bool:
    return any(value.startswith(_HASHED) for value in counts.counts)


def _hashed_all(counts: Mapping[str, int]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for value, count in counts.items():
        found[hashed(value)] += count
    return dict(sorted(found.items()))
