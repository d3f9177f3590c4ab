"""Deaths that follow one another closely, told apart from those of long ago. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

APART_SECS = 600.0
"""A death that comes later than this after the one before begins anew."""


@dataclass(frozen=True, slots=True)
class CrashHistory:
    """`since` and `last`: its first and its last death, in seconds of the epoch; `ending`: how the
    last one ended, as in "exited with status 3". Without a death yet, `deaths` is 0."""

    deaths: int = 0
    since: float = 0.0
    last: float = 0.0
    ending: str = ""

    def then(self, at: float, ending: str) -> "CrashHistory":
        """With one more death."""
        if not self.deaths or at - self.last > APART_SECS:
            return CrashHistory(1, at, at, ending)
        return CrashHistory(self.deaths + 1, self.since, at, ending)


def joined(histories: Iterable[CrashHistory]) -> CrashHistory:
    """Of several workers: all their deaths, from the first to the last."""
    died = [one for one in histories if one.deaths]
    if not died:
        return CrashHistory()
    latest = max(died, key=lambda one: one.last)
    deaths, since = sum(one.deaths for one in died), min(one.since for one in died)
    return CrashHistory(deaths, since, latest.last, latest.ending)
