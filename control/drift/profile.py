"""A profile: the distributions that a model is expected to get, as a JSON file. Pure.

Its format is described in docs/drift.md: numbers as a histogram between edges or as raw buckets,
names with their counts.
"""

import math
import re
from collections import Counter
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from control.drift.categories import MOST_CATEGORIES, category_counts
from control.drift.merge import checked, observations
from control.drift.numeric import key_of, numeric_counts
from control.drift.points import (
    MOST_FEATURES,
    MOST_NAME,
    CategoryCounts,
    Distribution,
    FeatureCounts,
    FeatureRole,
    NumericCounts,
    VersionDrift,
)
from control.errors import Invalid

FILE = "drift_profile.json"
LARGEST_BYTES = 2**20
FORMAT = 1

_Count = Annotated[int, Meta(ge=0, le=2**53)]


class ProfileFeature(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One feature. Numbers: `edges` in growing order and between them `counts`, one fewer, or
    `buckets` with `shift` as `modelyard drift profile` writes them. Names: `categories`, and
    `folded` where they are groups of hashes."""

    name: Annotated[str, Meta(min_length=1, max_length=MOST_NAME)]
    role: Literal["input", "output", "label", "confidence"] = "input"
    edges: list[float] | None = None
    counts: list[_Count] | None = None
    buckets: list[int] | None = None
    shift: int = 0
    not_finite: _Count = 0
    categories: dict[str, _Count] | None = None
    folded: bool = False


class DriftProfile(Struct, frozen=True, forbid_unknown_fields=True):
    """`comment`: for people; where it is from."""

    format: int
    features: list[ProfileFeature]
    comment: str = ""


_decoder = msgspec.json.Decoder(DriftProfile)
_PATH = re.compile(r" - at `(.+)`$")


class BadProfile(Invalid):
    """A profile that cannot be used. `path`: of what is wrong with it ("$.features[2]"), "" where
    that is no value of it."""

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(message, "profile")
        self.path = path


def read_profile(text: str | bytes, model: str = "", version: int = 0) -> VersionDrift:
    """Raises BadProfile saying what of it is wrong."""
    raw = text.encode() if isinstance(text, str) else text
    if len(raw) > LARGEST_BYTES:
        raise BadProfile(f"{FILE} is too large; at most {LARGEST_BYTES} bytes")
    try:
        profile = _decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        place = _PATH.search(str(error))
        path = place[1] if place else "$" if isinstance(error, msgspec.ValidationError) else ""
        raise BadProfile(f"{FILE} is no drift profile: {error}", path) from error
    return from_profile(profile, model, version)


def from_profile(profile: DriftProfile, model: str = "", version: int = 0) -> VersionDrift:
    """Raises BadProfile."""
    if profile.format != FORMAT:
        raise BadProfile(
            f"{FILE} has format {profile.format}; this build reads {FORMAT}", "$.format"
        )
    if not 1 <= len(profile.features) <= MOST_FEATURES:
        raise BadProfile(
            f"{FILE} has {len(profile.features)} features; from 1 to {MOST_FEATURES}", "$.features"
        )
    features = []
    for number, one in enumerate(profile.features):
        try:
            features.append(FeatureCounts(one.name, one.role, _counts(one)))
        except (ValueError, OverflowError) as error:
            words = f"{FILE}: feature '{one.name}': {error}"
            raise BadProfile(words, f"$.features[{number}]") from error
    return VersionDrift(model, version, 0, tuple(features))


def _counts(one: ProfileFeature) -> Distribution:
    given = [name for name in ("edges", "buckets", "categories") if getattr(one, name) is not None]
    if len(given) != 1:
        raise ValueError(
            f"give one of edges, buckets and categories, not {' and '.join(given) or 'none'}"
        )
    if one.categories is not None:
        if len(one.categories) > MOST_CATEGORIES and not one.folded:
            raise ValueError(f"{len(one.categories)} categories; at most {MOST_CATEGORIES}")
        found: Distribution = category_counts(
            {name: count for name, count in one.categories.items() if count}, one.folded
        )
    elif one.buckets is not None:
        steps, counts = one.buckets[::2], one.buckets[1::2]
        if any(abs(step) > MOST_STEP for step in steps) or any(n > MOST_COUNT for n in counts):
            raise ValueError(f"a step is above {MOST_STEP} or a count above {MOST_COUNT}")
        found = checked(NumericCounts(one.shift, tuple(one.buckets), one.not_finite))
    else:
        found = _from_edges(one.edges or [], one.counts or [], one.not_finite)
    if observations(found) > MOST_COUNT or one.not_finite > MOST_COUNT:
        raise ValueError(f"it counts more than {MOST_COUNT} values")
    if not observations(found):
        raise ValueError("it counts nothing")
    return found


MOST_EDGES = 1025
MOST_STEP, MOST_COUNT = 2**32, 2**53
"""Between two buckets; of all values of a feature."""
_PARTS = 16
"""Points among which the values between two edges are spread evenly."""


def _from_edges(edges: list[float], counts: list[int], not_finite: int) -> Distribution:
    if len(edges) != len(counts) + 1 or not 2 <= len(edges) <= MOST_EDGES:
        raise ValueError(f"{len(edges)} edges and {len(counts)} counts; one edge more than counts")
    if any(not math.isfinite(edge) for edge in edges):
        raise ValueError("an edge is not a finite number")
    found: Counter[int] = Counter()
    for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True):
        if high < low:
            raise ValueError(f"the edge {high:g} comes after {low:g}")
        parts = min(_PARTS, count)
        for part in range(parts):
            value = low + (high - low) * (part + 0.5) / parts
            found[key_of(value)] += count // parts + (part < count % parts)
    return numeric_counts(found, 0, not_finite)


def to_profile(counts: VersionDrift, comment: str = "") -> DriftProfile:
    features = [_feature(one.name, one.role, one.counts) for one in counts.features]
    return DriftProfile(FORMAT, features, comment)


def _feature(name: str, role: FeatureRole, counts: Distribution) -> ProfileFeature:
    if isinstance(counts, CategoryCounts):
        return ProfileFeature(name, role, categories=counts.counts, folded=counts.folded)
    return ProfileFeature(
        name, role, buckets=list(counts.counts), shift=counts.shift, not_finite=counts.not_finite
    )


def write_profile(profile: DriftProfile) -> bytes:
    """For a file, indented."""
    return msgspec.json.format(msgspec.json.encode(profile), indent=1) + b"\n"
