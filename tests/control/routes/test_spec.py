"""What may be written for a route, as JSON."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.errors import Invalid
from control.routes.spec import BUCKETS, buckets_of, parse_spec, percent_of, spec_json

ARMS = [
    {"name": "stable", "model": "m", "version": 1, "weight": 99.75},
    {"name": "candidate", "model": "m", "alias": "next", "weight": 0.25},
]
RULES = {"matches": [{"header": "X-Tester", "value": "yes", "arm": "candidate"}]}


def test_a_spec_is_read_and_written_again() -> None:
    spec = parse_spec({"arms": ARMS, "unit": "parameter:user", "salt": "s", **RULES})
    assert [arm.weight for arm in spec.arms] == [9_975, 25]
    assert spec.matches[0].header == "x-tester"
    assert parse_spec(spec_json(spec)) == spec


@given(st.integers(0, BUCKETS))
def test_every_share_of_buckets_has_its_percentage(buckets: int) -> None:
    assert buckets_of(percent_of(buckets), "it", "") == buckets


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"arms": {}}, "arms must be a list|1 to 16 arms"),
        ({"arms": ["m"]}, "arms must be a list of objects"),
        (
            {"arms": [{**ARMS[0], "weight": 99.755}, ARMS[1]]},
            "weight of the arm 'stable' is 99.755",
        ),
        ({"arms": [{**ARMS[0], "weight": "9"}]}, "weight of the arm 'stable' is 9; it must be a n"),
        ({"arms": [{**ARMS[0], "version": "1"}]}, "names the version 1, which is no version"),
        ({"arms": [{**ARMS[0], "share": 1}]}, "the arm 'stable' has no 'share'; there are name,"),
        ({"arms": [{**ARMS[0], "weight": float("nan")}]}, "is nan %"),
        ({"matches": [{"header": "x", "value": "", "arm": "stable"}]}, "needs a value of 1 to 256"),
        ({"matches": [{"header": "x", "value": "y", "arm": "stable", "prefix": 1}]}, "prefix"),
        (
            {"mirrors": [{"arm": "stable", "percent": 101}]},
            "share of the mirror to 'stable' is 101",
        ),
        ({"unit": 3}, "unit of the route is 3; it must be a string"),
    ],
)
def test_what_cannot_be_is_named(change: dict[str, Any], says: str) -> None:
    with pytest.raises(Invalid, match=says):
        parse_spec({"arms": ARMS, **change})
