"""Many comparisons share one chance of being called different."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.statistics.holm import adjusted


def test_each_is_raised_by_how_many_are_no_better() -> None:
    assert adjusted({"a": 0.01, "b": 0.04, "c": 0.03}) == pytest.approx(
        {"a": 0.03, "b": 0.06, "c": 0.06}
    )
    assert adjusted({}) == {}
    assert adjusted({"a": 0.2}) == {"a": 0.2}


@given(st.lists(st.floats(0, 1), max_size=20))
def test_order_stays_and_none_gets_smaller_or_more_than_bonferroni(values: list[float]) -> None:
    before = dict(enumerate(values))
    after = adjusted(before)
    for key, value in before.items():
        assert value <= after[key] <= min(1.0, value * len(values))
    ordered = sorted(before, key=lambda key: before[key])
    assert [after[key] for key in ordered] == sorted(after.values())
