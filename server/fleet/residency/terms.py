"""What a model's config and the settings say of when it is loaded. Pure.

The keys are `parameters` of config.pbtxt (`repository.config.parameter_table`).
"""

import re
from collections.abc import Mapping
from datetime import datetime, time
from typing import NamedTuple

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_HOURS = re.compile(r"(?:([a-z]{3})(?:-([a-z]{3}))? )?(\d\d):(\d\d)-(\d\d):(\d\d)")
LONGEST_S = 366 * 86400.0


class BadTerms(ValueError):
    """A parameter that cannot be read; the message names it, its value and what is allowed."""


class WarmHours(NamedTuple):
    """Days of the week (Monday is 0) and the hours of them in which a model stays loaded, in the
    server's time zone; from 22:00 to 06:00 goes on into the day after. `text`: as written."""

    days: frozenset[int]
    begin: time
    end: time
    text: str

    def contain(self, clock: datetime) -> bool:
        now, today = clock.time(), clock.weekday()
        if self.begin < self.end:
            return today in self.days and self.begin <= now < self.end
        yesterday = (today - 1) % 7
        return (today in self.days and now >= self.begin) or (
            yesterday in self.days and now < self.end
        )


class ResidencyTerms(NamedTuple):
    """`on_demand`: loaded by the first request, evictable afterwards. The others count for such
    models only. `pinned`: loaded at once, never evicted. Durations in seconds: `min_residency_s`
    after a load and `keep_warm_s` after a request it is not evicted; after `idle_unload_s` without
    a request it is unloaded, also while nobody needs the memory (0: never)."""

    on_demand: bool = False
    pinned: bool = False
    min_residency_s: float = 0.0
    keep_warm_s: float = 0.0
    idle_unload_s: float = 0.0
    warm_hours: WarmHours | None = None


def read_terms(parameters: Mapping[str, str], defaults: ResidencyTerms) -> ResidencyTerms:
    """The terms of a model with these parameters. Raises BadTerms."""
    hours = parameters.get("warm_hours", "")
    return ResidencyTerms(
        on_demand=_switch(parameters, "load_on_demand", defaults.on_demand),
        pinned=_switch(parameters, "pinned", defaults.pinned),
        min_residency_s=_seconds(parameters, "min_residency_secs", defaults.min_residency_s),
        keep_warm_s=_seconds(parameters, "keep_warm_secs", defaults.keep_warm_s),
        idle_unload_s=_seconds(parameters, "idle_unload_secs", defaults.idle_unload_s),
        warm_hours=read_hours(hours) if hours else defaults.warm_hours,
    )


def read_hours(text: str) -> WarmHours:
    """Of "08:00-18:00" or "Mon-Fri 08:00-18:00". Raises BadTerms."""
    found = _HOURS.fullmatch(text.strip().lower())
    first, last, *numbers = found.groups() if found else ("", "")
    hours = [int(number) for number in numbers]
    days = [day for day in (first, last) if day]
    readable = found is not None and all(day in DAYS for day in days)
    if not readable or max(hours[0], hours[2]) > 23 or max(hours[1], hours[3]) > 59:
        raise BadTerms(
            f"parameter warm_hours is '{text}'; it must be hours, with days or without, such as "
            "08:00-18:00 or Mon-Fri 08:00-18:00"
        )
    begin, end = time(hours[0], hours[1]), time(hours[2], hours[3])
    if begin == end:
        raise BadTerms(f"parameter warm_hours is '{text}'; it must end at another time than begin")
    return WarmHours(_days(first, last), begin, end, text.strip())


def _days(first: str | None, last: str | None) -> frozenset[int]:
    if not first:
        return frozenset(range(7))
    begin = DAYS.index(first)
    length = (DAYS.index(last or first) - begin) % 7
    return frozenset((begin + day) % 7 for day in range(length + 1))


def _switch(parameters: Mapping[str, str], name: str, default: bool) -> bool:
    text = parameters.get(name, "")
    if not text:
        return default
    if text.lower() not in ("true", "false", "1", "0"):
        raise BadTerms(f"parameter {name} is '{text}'; it must be true or false")
    return text.lower() in ("true", "1")


def _seconds(parameters: Mapping[str, str], name: str, default: float) -> float:
    text = parameters.get(name, "")
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= LONGEST_S:
        raise BadTerms(f"parameter {name} is '{text}'; it must be seconds from 0 to {LONGEST_S:g}")
    return value
