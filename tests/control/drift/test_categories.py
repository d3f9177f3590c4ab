"""Counts of names: bounded, merged exactly, hashed on demand."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from control.drift.categories import (
    GROUPS,
    MOST_CATEGORIES,
    category_counts,
    comparable,
    hash_of,
    hashed,
    merged_categories,
)
from control.drift.points import CategoryCounts

NAMES = st.lists(st.integers(0, 140).map(str), max_size=400)


def of(names: list[str]) -> CategoryCounts:
    return category_counts(Counter(names))


@given(NAMES, NAMES, NAMES)
def test_merging_is_associative_and_that_of_all_values(
    a: list[str], b: list[str], c: list[str]
) -> None:
    x, y, z = of(a), of(b), of(c)
    left = merged_categories([merged_categories([x, y]), z])
    assert left == merged_categories([x, merged_categories([y, z])]) == of(a + b + c)


def test_more_than_the_most_are_groups() -> None:
    found = of([f"user-{n}" for n in range(10_000)])
    assert found.folded
    assert len(found.counts) <= GROUPS
    assert sum(found.counts.values()) == 10_000


def test_as_many_as_the_most_are_kept_apart() -> None:
    assert not of([str(n) for n in range(MOST_CATEGORIES)]).folded


def test_names_are_compared_with_hashes_of_names() -> None:
    one, other = comparable(of(["red", "blue"]), of([hashed("red")] * 3))
    assert one[hashed("red")] == 1
    assert other[hashed("red")] == 3


def test_groups_are_compared_with_names() -> None:
    many = of([f"user-{n}" for n in range(1000)])
    one, other = comparable(many, of(["user-7"]))
    assert set(other) <= set(one)


def test_merging_names_with_hashes_keeps_hashes() -> None:
    assert merged_categories([of(["red"]), of([hashed("red")])]).counts == {hashed("red"): 2}


def test_what_only_looks_like_a_hash_is_hashed() -> None:
    assert hashed(hashed("cat")) == hashed("cat")
    assert hashed("#zzzzzzzz") != "#zzzzzzzz"
    found = of(["#zzzzzzzz", "group x", *map(str, range(200))])
    assert sum(found.counts.values()) == 202


def test_what_a_client_sends_is_hashed_even_if_it_is_a_hash() -> None:
    assert hash_of(hash_of("cat")) != hash_of("cat")
