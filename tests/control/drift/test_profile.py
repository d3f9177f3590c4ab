"""Drift profiles: what is written is read back, what is wrong is told."""

import json
from typing import Any

import pytest

from control.drift.categories import category_counts
from control.drift.comparison import compare
from control.drift.numeric import counted
from control.drift.points import FeatureCounts, VersionDrift
from control.drift.profile import LARGEST_BYTES, read_profile, to_profile, write_profile
from control.errors import Invalid

COUNTS = VersionDrift(
    "m",
    3,
    0,
    (
        FeatureCounts("x", "input", counted([0.5, 1.5, 1.5, -3.25])),
        FeatureCounts("label", "label", category_counts({"cat": 2, "dog": 5})),
    ),
)


def test_a_profile_is_read_back_as_it_was_written() -> None:
    assert read_profile(write_profile(to_profile(COUNTS, "digits")), "m", 3) == COUNTS


def profile(**feature: Any) -> str:
    return json.dumps({"format": 1, "features": [{"name": "x", **feature}]})


def test_a_histogram_between_edges_is_close_to_its_sample() -> None:
    sample = [n / 100 for n in range(1000)]
    found = read_profile(profile(edges=[0, 2.5, 5, 7.5, 10], counts=[250] * 4))
    compared = compare(found.features[0].counts, counted(sample))
    assert compared is not None
    assert compared.ks is not None
    assert compared.ks < 0.02


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is no drift profile"),
        ('{"format": 2, "features": [{"name": "x"}]}', "has format 2; this build reads 1"),
        ('{"format": 1, "features": []}', "has 0 features; from 1 to 64"),
        (profile(), "feature 'x': give one of edges, buckets and categories, not none"),
        (profile(edges=[0, 1], counts=[1, 2]), "2 edges and 2 counts"),
        (profile(edges=[1, 0], counts=[1]), "the edge 0 comes after 1"),
        (profile(edges=[0, 1], counts=[0]), "it counts nothing"),
        (profile(categories={"a": -1}), "is no drift profile"),
        (profile(buckets=[1, 0]), "in order, or empty"),
        (profile(buckets=[1, 2], categories={"a": 1}), "not buckets and categories"),
        (profile(buckets=[10**30, 5]), "a step is above"),
        (profile(buckets=[0, 2**63, 1, 2**63, 1, 2**63]), "or a count above"),
        (profile(mean=3), "unknown field `mean`"),
        (" " * (LARGEST_BYTES + 1), "at most 1048576"),
    ],
)
def test_what_is_wrong_with_a_profile_is_told(text: str, words: str) -> None:
    with pytest.raises(Invalid, match=words):
        read_profile(text)
