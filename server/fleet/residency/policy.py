"""Decide which versions to evict, unload and load. Pure: plain data and `now` in, a decision out.

`server.fleet.residency.residency` asks and acts. Least recently used goes first.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from server.fleet.memory.ledger import Eviction
from server.fleet.residency.terms import ResidencyTerms

SHOWN = 4
"""How many versions that stay a refusal names."""


@dataclass(frozen=True, slots=True)
class ResidencyFacts:
    """One version that is loaded on demand, as it is now. `name`: "digits version 2".

    `moving`: it is being loaded or closed now. `bytes`: what evicting it would give back of the
    device in question. `loaded_at`, `last_used`:
    on the clock of `now`. `inflight`: requests that it has not answered; `kept`: calls of other
    models that will yet come to it; `sequences`: that are alive on it. `pinned`: by its terms or by
    an operator.
    """

    name: str
    resident: bool
    bytes: int
    loaded_at: float
    last_used: float
    terms: ResidencyTerms
    inflight: int = 0
    kept: int = 0
    sequences: int = 0
    pinned: bool = False
    moving: bool = False


class Hold(NamedTuple):
    """Why a version is not evicted now; `passing`: it may be soon without anybody's doing."""

    reason: str
    passing: bool


class Moves(NamedTuple):
    """Versions to load for their pins and hours, and to unload because nobody has used them."""

    load: tuple[str, ...]
    unload: tuple[str, ...]


def hold_on(facts: ResidencyFacts, now: float, clock: datetime) -> Hold | None:
    """Why the version stays; None where it may be evicted. `clock`: the server's local time."""
    terms = facts.terms
    if facts.pinned:
        return Hold("is pinned", False)
    if terms.warm_hours is not None and terms.warm_hours.contain(clock):
        return Hold(f"is kept warm {terms.warm_hours.text}", False)
    if facts.inflight:
        return Hold(f"has {_count(facts.inflight, 'request')} in flight", True)
    if facts.kept:
        return Hold(f"will be called by {_count(facts.kept, 'request')}", True)
    if facts.sequences:
        return Hold(f"has {_count(facts.sequences, 'live sequence')}", True)
    if now < facts.loaded_at + terms.min_residency_s:
        return Hold(f"was loaded less than {terms.min_residency_s:g} s ago", True)
    if now < facts.last_used + terms.keep_warm_s:
        return Hold(f"is kept warm {terms.keep_warm_s:g} s after a request", True)
    return None


def choose_victims(
    versions: Iterable[ResidencyFacts], lacking: int, now: float, clock: datetime
) -> Eviction:
    """The least recently used versions that free `lacking` bytes, and none that is not needed."""
    versions = list(versions)
    free: list[ResidencyFacts] = []
    held: list[tuple[ResidencyFacts, Hold]] = []
    for one in versions:
        if one.resident and one.bytes > 0:
            hold = hold_on(one, now, clock)
            if hold is None:
                free.append(one)
            else:
                held.append((one, hold))
    chosen = _enough(sorted(free, key=lambda one: (one.last_used, one.name)), lacking)
    if chosen:
        return Eviction(tuple(one.name for one in chosen), (), False)
    passing = sum(one.bytes for one, hold in held if hold.passing) + sum(one.bytes for one in free)
    moving = any(one.moving for one in versions)
    held.sort(key=lambda pair: (pair[1].passing, -pair[0].bytes, pair[0].name))
    return Eviction((), _texts(held), moving or passing >= lacking)


def _enough(ordered: Sequence[ResidencyFacts], lacking: int) -> list[ResidencyFacts]:
    """The first that free enough, without those whose leaving is not needed; [] for not enough."""
    chosen: list[ResidencyFacts] = []
    freed = 0
    for one in ordered:
        if freed >= lacking:
            break
        chosen.append(one)
        freed += one.bytes
    if freed < lacking:
        return []
    for one in reversed(chosen[:]):  # the more recently used of those that are not needed stay
        if freed - one.bytes >= lacking:
            chosen.remove(one)
            freed -= one.bytes
    return chosen


def next_moves(versions: Iterable[ResidencyFacts], now: float, clock: datetime) -> Moves:
    """What to do of the versions' own accord, whoever else needs memory."""
    load, unload = [], []
    for one in versions:
        hours = one.terms.warm_hours
        wanted = one.pinned or (hours is not None and hours.contain(clock))
        if wanted and not one.resident:
            load.append(one.name)
        idle = one.terms.idle_unload_s
        used = max(one.last_used, one.loaded_at)
        if one.resident and idle and now >= used + idle and hold_on(one, now, clock) is None:
            unload.append(one.name)
    return Moves(tuple(load), tuple(unload))


def _texts(held: Sequence[tuple[ResidencyFacts, Hold]]) -> tuple[str, ...]:
    texts = [f"{one.name} {hold.reason}" for one, hold in held[:SHOWN]]
    if more := len(held) - SHOWN:
        texts += [f"and {more} more stay"] if more > 0 else []
    return tuple(texts)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
