"""Evicts idle versions when another needs their memory, and keeps to pins, hours and idle times.

The pump around `server.fleet.residency.policy`. Owned by `server.fleet.loading`; on the loop's
thread.
"""

import asyncio
import json
import logging
import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from schedulers.counters import BucketCounts
from server.fleet.memory.ledger import Eviction
from server.fleet.residency.on_demand import OnDemandVersion
from server.fleet.residency.policy import (
    ResidencyFacts,
    choose_victims,
    hold_on,
    next_moves,
)
from server.served_version import ResidencyRow

LOOK_S = 1.0
"""How often pins, hours and idle times are looked at."""
RETRY_S = 30.0
"""How long a version that is to be kept warm and could not be loaded waits for its next try."""
PINS = "pins.json"

_log = logging.getLogger(__name__)


class Residency:
    """Every version of this server that is loaded on demand."""

    def __init__(
        self,
        state_dir: Path | None,
        most_waiting: int,
        timeout_s: float,
        shown: Callable[[str], str] = str,
    ) -> None:
        """`state_dir`: where pins are kept, None for nowhere. `most_waiting`: requests for one
        version that is being loaded; `timeout_s`: how long each may wait for it. `shown`: makes of
        a reason what clients may see."""
        self.most_waiting, self.timeout_s, self.shown = most_waiting, timeout_s, shown
        self.cold_starts = BucketCounts()
        self.evictions: dict[tuple[str, int], int] = {}
        self._path = None if state_dir is None else state_dir / PINS
        self._pins = _read(self._path)
        self._versions: dict[str, OnDemandVersion] = {}
        self._next_try: dict[str, float] = {}
        self._looking: asyncio.Task[None] | None = None

    # who there is

    def add(self, version: OnDemandVersion) -> None:
        self._versions[version.name] = version
        if self._looking is None:
            self._looking = asyncio.create_task(self._look())

    def forget(self, version: OnDemandVersion) -> None:
        if self._versions.get(version.name) is version:
            del self._versions[version.name]
            self._next_try.pop(version.name, None)
        if not self._versions and self._looking is not None:
            self._looking.cancel()
            self._looking = None

    def loaded(self, version: OnDemandVersion, seconds: float) -> None:
        self.cold_starts.add(int(seconds * 1e9))

    def is_warm(self, model: str) -> bool:
        """Whether a version of the model is loaded now: a new one is loaded before it answers."""
        mine = (one for one in self._versions.values() if one.served.version.name == model)
        return any(one.resident is not None for one in mine)

    def pinned(self, model: str) -> bool:
        """By an operator."""
        return model in self._pins

    # what operators do

    def pin(self, model: str, pinned: bool) -> None:
        """Load it, and never evict it; or no longer. Kept across restarts."""
        if pinned:
            self._pins.add(model)
        else:
            self._pins.discard(model)
        self._next_try.clear()
        if self._path is not None:
            beside = self._path.with_suffix(".tmp")
            beside.write_text(json.dumps(sorted(self._pins)))
            os.replace(beside, self._path)
        self._move()

    def versions_of(self, model: str) -> list[OnDemandVersion]:
        return [one for one in self._versions.values() if one.served.version.name == model]

    def rows(self) -> list[ResidencyRow]:
        now, clock = time.monotonic(), _clock()
        rows = []
        for one in self._versions.values():
            facts = self._facts(one, "", now)
            version, hold = one.served.version, hold_on(facts, now, clock)
            idle = None if not one.last_used else max(0.0, now - one.last_used)
            rows.append(
                ResidencyRow(
                    version.name,
                    version.number,
                    facts.resident,
                    one.loading,
                    facts.pinned,
                    facts.bytes,
                    idle,
                    one.waiting,
                    self.evictions.get((version.name, version.number), 0),
                    "" if hold is None else hold.reason,
                )
            )
        return sorted(rows)

    # making room

    async def make_room(self, device: str, lacking: int, whom: str) -> Eviction:
        """Evict the least recently used for `whom`, and return when their memory is free."""
        now = time.monotonic()
        others = (one for one in self._versions.values() if one.name != whom)
        facts = [self._facts(one, device, now) for one in others]
        eviction = choose_victims(facts, lacking, now, _clock())
        await self._evict(eviction.victims, f"to make room for {whom}")
        return eviction

    async def _evict(self, names: Iterable[str], why: str) -> None:
        leaving = []
        for name in names:
            version = self._versions[name]
            task = version.evict()
            if task is not None:
                _log.info("%s: evicted %s", name, why)
                key = (version.served.version.name, version.served.version.number)
                self.evictions[key] = self.evictions.get(key, 0) + 1
                leaving.append(task)
        if leaving:
            await asyncio.wait(leaving)

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            self._move()

    def _move(self) -> None:
        now = time.monotonic()
        facts = [self._facts(one, "", now) for one in self._versions.values()]
        moves = next_moves(facts, now, _clock())
        for name in moves.load:
            if now >= self._next_try.get(name, 0.0):
                self._next_try[name] = now + RETRY_S
                self._versions[name].begin_loading()
        for name in moves.unload:
            if self._versions[name].evict() is not None:
                _log.info("%s: unloaded, nobody has used it", name)

    def _facts(self, one: OnDemandVersion, device: str, now: float) -> ResidencyFacts:
        return one.facts(device, now, one.served.version.name in self._pins)


def _clock() -> datetime:
    return datetime.now().astimezone()


def _read(path: Path | None) -> set[str]:
    """Pins that cannot be read are none."""
    if path is not None:
        with suppress(OSError, ValueError):
            found = json.loads(path.read_text())
            if isinstance(found, list):
                return {one for one in found if isinstance(one, str)}
    return set()
