"""What configs say of residency: read, or refused naming the parameter."""

from datetime import UTC, datetime

import pytest

from server.fleet.residency.terms import BadTerms, ResidencyTerms, read_hours, read_terms

MONDAY, SATURDAY = 23, 28  # of November 2026


def at(day: int, hour: int, minute: int = 0) -> datetime:
    return datetime(2026, 11, day, hour, minute, tzinfo=UTC)


def test_a_config_overrides_the_settings() -> None:
    defaults = ResidencyTerms(on_demand=True, min_residency_s=1.0)
    given = {"load_on_demand": "false", "pinned": "true", "keep_warm_secs": "2.5"}
    terms = read_terms(given, defaults)
    assert terms == ResidencyTerms(False, True, 1.0, 2.5)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("load_on_demand", "maybe"),
        ("pinned", "2"),
        ("min_residency_secs", "-1"),
        ("keep_warm_secs", "soon"),
        ("idle_unload_secs", "nan"),
        ("warm_hours", "8-18"),
        ("warm_hours", "Mon-Foo 08:00-18:00"),
        ("warm_hours", "08:00-25:00"),
        ("warm_hours", "08:00-08:00"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_key_and_value(key: str, value: str) -> None:
    with pytest.raises(BadTerms, match=f"parameter {key} is '{value}'; it must"):
        read_terms({key: value}, ResidencyTerms())


@pytest.mark.parametrize(
    ("text", "clock", "inside"),
    [
        ("08:00-18:00", at(SATURDAY, 8), True),
        ("08:00-18:00", at(SATURDAY, 18), False),
        ("Mon-Fri 08:00-18:00", at(MONDAY, 17, 59), True),
        ("Mon-Fri 08:00-18:00", at(SATURDAY, 12), False),
        ("Sat 22:00-06:00", at(SATURDAY, 23), True),
        ("Sat 22:00-06:00", at(SATURDAY + 1, 5), True),
        ("Sat 22:00-06:00", at(SATURDAY, 5), False),
        ("Fri-Mon 08:00-18:00", at(MONDAY, 9), True),
        ("Fri-Mon 08:00-18:00", at(MONDAY + 1, 9), False),
    ],
)
def test_warm_hours_hold_on_their_days_and_over_midnight(
    text: str, clock: datetime, inside: bool
) -> None:
    assert read_hours(text).contain(clock) is inside
