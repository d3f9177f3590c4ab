"""How long and how often a token may be used."""

import math
from datetime import UTC, datetime, timedelta

import pytest

from control.access.scopes import Role
from control.access.token_terms import DAY_S, LONGEST_S, RateLimit, expiry, limit
from control.errors import Invalid

NOW = datetime(2026, 11, 21, tzinfo=UTC)


@pytest.mark.parametrize(
    ("role", "seconds", "expected"),
    [
        (Role.VIEWER, None, NOW + timedelta(days=90)),
        (Role.ADMIN, None, NOW + timedelta(days=90)),
        (Role.VIEWER, 1, NOW + timedelta(seconds=1)),
        (Role.VIEWER, LONGEST_S, NOW + timedelta(days=3650)),
        (Role.ADMIN, 0, None),
    ],
)
def test_a_token_ends_when_asked_or_after_90_days(
    role: Role, seconds: float | None, expected: datetime | None
) -> None:
    assert expiry(NOW, role, seconds) == expected


@pytest.mark.parametrize("seconds", [-1, 0.5, LONGEST_S + DAY_S, math.inf, -math.inf, math.nan])
def test_an_end_that_cannot_be_is_refused(seconds: float) -> None:
    with pytest.raises(Invalid, match="give 1 to 315360000"):
        expiry(NOW, Role.ADMIN, seconds)


@pytest.mark.parametrize("role", [Role.VIEWER, Role.OPERATOR])
def test_never_is_for_admins(role: Role) -> None:
    with pytest.raises(Invalid, match="only an admin's"):
        expiry(NOW, role, 0)


@pytest.mark.parametrize(
    ("rate", "burst", "expected"),
    [
        (None, None, RateLimit()),
        (0.1, None, RateLimit(0.1, 1)),
        (2.5, None, RateLimit(2.5, 3)),
        (10.0, 50, RateLimit(10.0, 50)),
    ],
)
def test_a_burst_is_a_seconds_worth_unless_said_otherwise(
    rate: float | None, burst: int | None, expected: RateLimit
) -> None:
    assert limit(rate, burst) == expected


@pytest.mark.parametrize(
    ("rate", "burst", "field"),
    [
        (None, 5, "burst"),
        (1.0, 0, "burst"),
        (1.0, 10**7, "burst"),
        (0.0, None, "rate_per_s"),
        (-1.0, None, "rate_per_s"),
        (math.nan, None, "rate_per_s"),
        (math.inf, None, "rate_per_s"),
    ],
)
def test_a_limit_that_cannot_be_is_refused(
    rate: float | None, burst: int | None, field: str
) -> None:
    with pytest.raises(Invalid) as refused:
        limit(rate, burst)
    assert refused.value.field == field
