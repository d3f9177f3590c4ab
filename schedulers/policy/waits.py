"""Models whose instances wait for each other's answers: finds the circle that none gets out of.

An instance that executes waits for every model it has called. A model is stuck when every instance
of it waits for a model that is stuck; a call that makes one is refused instead (`server.bls`).
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeVar

Version = tuple[str, int]
"""A model's name and version."""

Caller = TypeVar("Caller")
"""An instance that executes and waits for models it has called."""

Waits = Mapping[Version, Sequence[Collection[Version]]]
"""Of each version, what those of its instances wait for that do wait."""


def find_circle(
    waits: Waits, instances: Mapping[Version, int], caller: Version
) -> tuple[Version, ...]:
    """The versions that wait for each other, beginning with `caller`, if it can never be answered;
    otherwise nothing. `instances`: how many each waiting version has, 0 where that
    is not known."""
    stuck = {
        version
        for version, waiting in waits.items()
        if 0 < instances.get(version, 0) <= len(waiting)
    }
    while freed := {version for version in stuck if not _is_stuck(waits, stuck, version)}:
        stuck -= freed
    if caller not in stuck:
        return ()
    chain = [caller]
    while (awaited := _awaited(waits, stuck, chain[-1])) not in chain:
        chain.append(awaited)
    return (*chain, awaited)


def _is_stuck(waits: Waits, stuck: Collection[Version], version: Version) -> bool:
    return all(any(one in stuck for one in waiting) for waiting in waits[version])


def _awaited(waits: Waits, stuck: Collection[Version], version: Version) -> Version:
    return next(one for waiting in waits[version] for one in waiting if one in stuck)


def stuck_callers(
    calls: Mapping[Caller, Collection[Version]],
    can_run: Callable[[Version, Collection[Caller]], bool],
) -> frozenset[Caller]:
    """Who can never be answered. `calls`: what each waits for; `can_run(version, callers)`: whether
    an execution of the version can start while these callers keep what they hold."""
    stuck = set(calls)
    while freed := {one for one in stuck if all(can_run(each, stuck) for each in calls[one])}:
        stuck -= freed
    return frozenset(stuck)
