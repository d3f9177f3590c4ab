from collections.abc import Collection, Mapping
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedulers.policy.waits import Version, find_circle, stuck_callers

A, B, C = ("a", 1), ("b", 1), ("c", 2)


@pytest.mark.parametrize(
    ("waits", "instances", "circle"),
    [
        ({A: [{B}]}, {A: 1}, ()),
        ({A: [{A}]}, {A: 1}, (A, A)),
        ({A: [{A}]}, {A: 2}, ()),
        ({A: [{B}], B: [{A}]}, {A: 1, B: 1}, (A, B, A)),
        ({A: [{B}], B: [{A}]}, {A: 1, B: 2}, ()),
        ({A: [{B}, {C}], B: [{A}]}, {A: 2, B: 1}, ()),
        ({A: [{B}, {B}], B: [{C}], C: [{A}]}, {A: 2, B: 1, C: 1}, (A, B, C, A)),
        ({A: [{B, C}], B: [{A}]}, {A: 1, B: 1}, (A, B, A)),
        ({A: [{A}]}, {A: 0}, ()),
    ],
    ids=[
        "a model that waits for one that runs",
        "a model that waits for itself",
        "and has another instance",
        "two that wait for each other",
        "of which one has an instance left",
        "an instance that waits for one that runs gets free",
        "three in a circle",
        "one of two answers never comes",
        "nobody knows how many there are",
    ],
)
def test_circle(
    waits: Mapping[Version, list[Collection[Version]]],
    instances: Mapping[Version, int],
    circle: tuple[Version, ...],
) -> None:
    assert find_circle(waits, instances, A) == circle


VERSIONS = [(name, 1) for name in "abcd"]
WAITS = st.dictionaries(
    st.sampled_from(VERSIONS),
    st.lists(st.sets(st.sampled_from(VERSIONS), min_size=1), min_size=1, max_size=3),
    min_size=1,
)


def _answered(
    waits: Mapping[Version, list[set[Version]]], instances: Mapping[Version, int]
) -> set[Version]:
    """The versions of which some instance gets free, by letting answers come one by one."""
    waiting = {version: [set(one) for one in calls] for version, calls in waits.items()}

    def is_free(version: Version) -> bool:
        return instances.get(version, 1) > len(waiting.get(version, ()))

    changed = True
    while changed:
        changed = False
        for calls in waiting.values():
            for one in list(calls):
                if all(map(is_free, one)):
                    calls.remove(one)
                    changed = True
    return {version for version in VERSIONS if is_free(version)}


@given(waits=WAITS, spare=st.dictionaries(st.sampled_from(VERSIONS), st.integers(0, 2)))
def test_circle_is_found_exactly_where_no_order_of_answers_frees_the_caller(
    waits: dict[Version, list[set[Version]]], spare: dict[Version, int]
) -> None:
    instances = {version: len(calls) + spare.get(version, 0) for version, calls in waits.items()}
    caller = next(iter(waits))
    circle = find_circle(waits, instances, caller)
    assert bool(circle) == (caller not in _answered(waits, instances))
    for waiting, awaited in pairwise(circle):
        assert any(awaited in one for one in waits[waiting])
    assert not circle or (circle[0] == caller and circle[-1] in circle[:-1])


@pytest.mark.parametrize(
    ("calls", "blocked", "stuck"),
    [
        ({"p": {A}}, {}, set()),
        ({"p": {A}}, {A: {"p"}}, {"p"}),
        ({"p": {A, B}}, {A: {"p"}}, {"p"}),
        ({"p": {A}, "q": {B}}, {A: {"q"}, B: {"p"}}, {"p", "q"}),
        ({"p": {A}, "q": {B}}, {A: {"q"}}, set()),
        ({"p": {A}, "q": {B}, "r": {C}}, {A: {"q"}, B: {"p"}}, {"p", "q"}),
    ],
    ids=[
        "nobody holds what the callee needs",
        "the caller does",
        "one of two callees",
        "two that hold what the other's callee needs",
        "one waits for another that will be answered",
        "and a third that has nothing to do with it",
    ],
)
def test_callers_are_stuck_whose_callees_need_what_stuck_callers_hold(
    calls: dict[str, set[Version]], blocked: dict[Version, set[str]], stuck: set[str]
) -> None:
    def can_run(version: Version, holders: Collection[str]) -> bool:
        return blocked.get(version, set()).isdisjoint(holders)

    assert stuck_callers(calls, can_run) == stuck
