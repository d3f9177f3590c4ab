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
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from control.gateways.queries import ResidencyAnswer, ResidencyQuery
from schedulers.counters import BucketCounts
from server.fleet.memory.ledger import Eviction
from server.fleet.residency import policy
from server.fleet.residency.on_demand import OnDemandVersion
from server.fleet.residency.policy import choose_victims, hold_on, next_moves
from server.fleet.residency.views import resident_version
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
        """Of each version, to make room for another; not those by hand and of idle ones."""
        self._path = None if state_dir is None else state_dir / PINS
        self._pins = _read(self._path)
        self._versions: dict[OnDemandVersion, None] = {}
        self._next_try: dict[OnDemandVersion, float] = {}
        self._looking: asyncio.Task[None] | None = None

    # who there is

    def add(self, version: OnDemandVersion) -> None:
        """Another of the same name, which this one may replace, is there until `forget`."""
        self._versions[version] = None
        if self._looking is None:
            self._looking = asyncio.create_task(self._look())

    def forget(self, version: OnDemandVersion) -> None:
        self._versions.pop(version, None)
        self._next_try.pop(version, None)
        if not self._versions and self._looking is not None:
            self._looking.cancel()
            self._looking = None

    def loaded(self, version: OnDemandVersion, seconds: float) -> None:
        self.cold_starts.add(int(seconds * 1e9))

    def is_warm(self, model: str) -> bool:
        """Whether a version of the model is loaded now: a new one is loaded before it answers."""
        mine = (one for one in self._versions if one.served.version.name == model)
        return any(one.resident is not None for one in mine)

    def pinned(self, model: str) -> bool:
        """By an operator."""
        return model in self._pins

    # what operators do

    def pin(self, model: str, pinned: bool) -> None:
        """Load it, and never evict it; or no longer. Kept across restarts. Raises OSError, and
        changes nothing, where that cannot be written."""
        pins = self._pins | {model} if pinned else self._pins - {model}
        if self._path is not None:
            beside = self._path.with_suffix(".tmp")
            beside.write_text(json.dumps(sorted(pins)))
            os.replace(beside, self._path)
        self._pins = pins
        self._next_try.clear()
        self._move()

    def answer(self, query: ResidencyQuery) -> ResidencyAnswer:
        """What the control process asks, and has done: see `control.gateways.queries`."""
        problem, evicted = "", tuple[int, ...]()
        if query.action == "evict":
            problem, evicted = self._evict_now(query.model)
        elif query.action:
            problem = self._act(query.model, query.action)
        rows = [one for one in self.rows() if query.model in ("", one.name)]
        terms = {one.name: one.terms for one in self._versions}
        return ResidencyAnswer(
            tuple(
                resident_version(one, terms[f"{one.name} version {one.version}"]) for one in rows
            ),
            problem,
            evicted,
        )

    def _act(self, model: str, action: str) -> str:
        """Why it was not done; "" if it was."""
        mine = self._of(model)
        match action:
            case "unpin" if model in self._pins:  # whether or not it loads on demand by now
                return self._pin_or_say(model, False)
            case "pin" | "unpin" | "load" if not mine:
                return _none_of(model)
            case "pin" | "unpin":
                return self._pin_or_say(model, action == "pin")
            case "load":
                for version in mine:
                    version.begin_loading()
                return ""
        return f"'{action:.40}' is none of pin, unpin, evict and load"

    def _of(self, model: str) -> list[OnDemandVersion]:
        return [one for one in self._versions if one.served.version.name == model]

    def _pin_or_say(self, model: str, pinned: bool) -> str:
        try:
            self.pin(model, pinned)
        except OSError as error:
            stays = "not pinned" if pinned else "still pinned"
            return (
                f"'{model}' is {stays}, which could not be kept across a restart: {error}; "
                "make the state folder writable"
            )
        return ""

    def _evict_now(self, model: str) -> tuple[str, tuple[int, ...]]:
        """Begin to evict the versions that nothing holds: the others' reasons, and which they are.
        Their least time of residency, and the one after a request, do not hold them against an
        operator."""
        mine = self._of(model)
        if not mine:
            return _none_of(model), ()
        now, clock = time.monotonic(), _clock()
        stays, evicted = [], []
        for version in mine:
            if reason := self._stays(version, now, clock):
                stays.append(f"{version.name} {reason}")
            elif version.evict() is not None:
                _log.info("%s: evicted by an operator", version.name)
                evicted.append(version.served.version.number)
        if stays:
            stays = [f"{model} version {number} is evicted" for number in evicted] + stays
        return "; ".join(stays), tuple(evicted)

    def _stays(self, version: OnDemandVersion, now: float, clock: datetime) -> str:
        """Why an operator cannot have it evicted; "" where he can, or nothing is loaded."""
        if version.loading:
            return "is loading"
        if version.resident is None:
            return ""
        facts = self._facts(version, "", now)
        lenient = replace(facts, terms=facts.terms._replace(min_residency_s=0, keep_warm_s=0))
        hold = hold_on(lenient, now, clock)
        return "" if hold is None else hold.reason

    def rows(self) -> list[ResidencyRow]:
        now, clock = time.monotonic(), _clock()
        rows = {}
        for one in sorted(self._versions, key=lambda one: one.accepting):  # it counts once
            facts = self._facts(one, "", now)
            version, hold = one.served.version, hold_on(facts, now, clock)
            idle = None if not one.last_used else max(0.0, now - one.last_used)
            rows[one.name] = ResidencyRow(
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
        return sorted(rows.values())

    # making room

    async def make_room(self, device: str, lacking: int, whom: str) -> Eviction:
        """Evict the least recently used for `whom`, and return when their memory is free."""
        now = time.monotonic()
        others = (one for one in self._versions if one.name != whom)
        facts = [self._facts(one, device, now) for one in others]
        eviction = choose_victims(facts, lacking, now, _clock())
        await self._evict(eviction.victims, f"to make room for {whom}")
        return eviction

    async def _evict(self, names: Iterable[str], why: str) -> None:
        leaving = []
        for version in self._idle(names):
            task = version.evict()
            if task is not None:
                _log.info("%s: evicted %s", version.name, why)
                key = (version.served.version.name, version.served.version.number)
                self.evictions[key] = self.evictions.get(key, 0) + 1
                leaving.append(task)
        if leaving:
            await asyncio.wait(leaving)

    def _idle(self, names: Iterable[str]) -> list[OnDemandVersion]:
        """Those so named that nothing holds: of two of one name only one may be idle."""
        chosen, now, clock = set(names), time.monotonic(), _clock()
        named = [one for one in self._versions if one.name in chosen]
        return [one for one in named if hold_on(self._facts(one, "", now), now, clock) is None]

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            self._move()

    def _move(self) -> None:
        now = time.monotonic()
        facts = [self._facts(one, "", now) for one in self._versions]
        moves = next_moves(facts, now, _clock())
        for version in [one for one in self._versions if one.name in moves.load]:
            if version.resident is None and now >= self._next_try.get(version, 0.0):
                self._next_try[version] = now + RETRY_S
                version.begin_loading()
        for version in self._idle(moves.unload):
            if version.evict() is not None:
                _log.info("%s: unloaded, nobody has used it", version.name)

    def _facts(self, one: OnDemandVersion, device: str, now: float) -> policy.ResidencyFacts:
        return one.facts(device, now, one.served.version.name in self._pins)


def _none_of(model: str) -> str:
    return f"no version of '{model}' loads on demand on this server (load_on_demand)"


def _clock() -> datetime:
    return datetime.now().astimezone()


def _read(path: Path | None) -> frozenset[str]:
    """Pins that cannot be read are none."""
    if path is not None:
        with suppress(OSError, ValueError):
            found = json.loads(path.read_text())
            if isinstance(found, list):
                return frozenset(one for one in found if isinstance(one, str))
    return frozenset()
