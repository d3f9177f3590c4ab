"""The range of the charts comes from the page's query, and from nothing that cannot be meant."""

from datetime import UTC, datetime, timedelta

import pytest

from admin_ui.traffic.ranges import RANGES, range_of

NOW = datetime(2026, 11, 24, 4, tzinfo=UTC)


def test_a_named_range_ends_now() -> None:
    found = range_of({"range": "6h"}, NOW)
    assert (found.name, found.since, found.until) == ("6h", NOW - timedelta(hours=6), NOW)


def test_two_moments_are_a_range_without_a_name() -> None:
    query = {"since": "2026-11-24T01:00:00Z", "until": "2026-11-24T02:00:00Z", "range": "6h"}
    found = range_of(query, NOW)
    assert (found.name, found.until - found.since) == ("", timedelta(hours=1))


@pytest.mark.parametrize(
    "query",
    [
        {"range": "a fortnight"},
        {"since": "2026-11-24T01:00:00Z"},
        {"since": "yesterday", "until": "today"},
        {"since": "2026-11-24T01:00:00", "until": "2026-11-24T02:00:00"},
        {"since": "2026-11-24T02:00:00Z", "until": "2026-11-24T01:00:00Z"},
        {"since": "2025-11-24T02:00:00Z", "until": "2026-11-24T01:00:00Z"},
    ],
)
def test_what_cannot_be_meant_is_an_hour(query: dict[str, str]) -> None:
    found = range_of(query, NOW)
    assert found.since == NOW - RANGES["1h"]
