"""How long and how often a token may be used: defaults, limits and what is refused. Pure."""

import math
from dataclasses import dataclass
from datetime import datetime, timedelta

from control.access.scopes import Role
from control.errors import Invalid

DAY_S = 86_400
DEFAULT_S, LONGEST_S = 90 * DAY_S, 3650 * DAY_S
MOST_PER_S = 1_000_000


@dataclass(frozen=True, slots=True)
class RateLimit:
    """So many requests a second, and so many at once after a rest; None: not limited."""

    rate_per_s: float | None = None
    burst: int | None = None


def expiry(now: datetime, role: Role, expires_in_s: float | None) -> datetime | None:
    """When a token of a user with `role` ends: None for 90 days, 0 for never (admins only).

    Raises Invalid.
    """
    if expires_in_s is None:
        return now + timedelta(seconds=DEFAULT_S)
    if expires_in_s == 0:
        if role != Role.ADMIN:
            raise Invalid(
                f"only an admin's token may last for ever; give up to {LONGEST_S} seconds",
                "expires_in_s",
            )
        return None
    if not 1 <= expires_in_s <= LONGEST_S:  # false for NaN
        raise Invalid(
            f"a token cannot expire in {expires_in_s} seconds; give 1 to {LONGEST_S} (10 years)",
            "expires_in_s",
        )
    return now + timedelta(seconds=expires_in_s)


def limit(rate_per_s: float | None, burst: int | None) -> RateLimit:
    """Without a burst it is a second's worth. Raises Invalid."""
    if rate_per_s is None:
        if burst is not None:
            raise Invalid("a burst needs a rate_per_s", "burst")
        return RateLimit()
    if not 0 < rate_per_s <= MOST_PER_S:  # false for NaN
        raise Invalid(
            f"rate_per_s cannot be {rate_per_s}; give more than 0, at most {MOST_PER_S}, or "
            "leave it out for no limit",
            "rate_per_s",
        )
    if burst is None:
        return RateLimit(rate_per_s, math.ceil(rate_per_s))
    if not 1 <= burst <= MOST_PER_S:
        raise Invalid(f"burst cannot be {burst}; give 1 to {MOST_PER_S}", "burst")
    return RateLimit(rate_per_s, burst)
