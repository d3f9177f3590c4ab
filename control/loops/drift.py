"""The pump of drift: writes down what gateways counted, and, while it holds the lease, judges the
watched models as often as their terms say.

What has drifted is `control.drift.verdict`'s to say.
"""

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime

import msgspec

from control.clock import utc_now
from control.drift import findings, service, windows
from control.drift.points import DriftScores, DriftStored, DriftWindow
from control.drift.service import WatchedModel
from control.drift.terms import due_every_s
from control.drift.verdict import judge_drift
from control.errors import ControlError, DatabaseGone, LostLease
from control.loops.deployer import LEASE, LEASE_S
from control.loops.wake_event import IdleSeconds, WakeEvent, as_usual
from control.sql import leases
from control.sql.database import SYSTEM, Actor, Database, Fence

LOOK_S, IDLE_S = 1.0, 5.0
"""Between two looks at what is due: with watched models, and without any where not all that is
committed rings."""

FIRST_S = 15.0
"""At most, between two looks at a model of which nothing has been found yet."""

MOST_HOURS = 20
"""Merged in one look."""

AT_ONCE = 8
"""Windows that wait for the database; what comes beyond is not answered, and is sent again."""

_log = logging.getLogger(__name__)


class DriftPump:
    """On the loop. `tell` hands scores to the gateways that are connected, and to those that will
    be."""

    def __init__(
        self,
        database: Database,
        server: str,
        boot: str,
        tell: Callable[[DriftScores], None],
        idle_s: IdleSeconds = as_usual,
    ) -> None:
        self._database = database
        self._boot = boot
        self._actor = Actor(f"server:{server}", "system")
        self._tell = tell
        self._told: DriftScores | None = None
        self._packed = b""
        self._news = WakeEvent(idle_s)
        self.committed = self._news.committed
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._looked: dict[str, datetime] = {}
        self._failures: dict[str, str] = {}

    async def record(self, window: DriftWindow) -> DriftStored | None:
        """Store it; None where that cannot be done now."""
        if self._waiting >= AT_ONCE:
            return None
        self._waiting += 1
        try:
            async with self._turn:
                await asyncio.to_thread(self._store, window)
        except DatabaseGone as error:
            _log.debug("drift is blocked: %s", error)
            return None
        except ControlError as error:
            _log.error("a window of drift is dropped: %s", error)
        finally:
            self._waiting -= 1
        return DriftStored(window.at)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            pause_s, rest = IDLE_S, self._news.rest
            try:
                if await self._look():
                    pause_s = LOOK_S
                else:
                    rest = self._news.rest_idle
            except DatabaseGone as error:
                _log.debug("drift is blocked: %s", error)
            except LostLease as error:
                _log.info("drift: %s", error)
            await rest(pause_s)

    async def _look(self) -> bool:
        """Whether any model is watched."""
        watched, due = await asyncio.to_thread(self._due, utc_now())
        if due:
            fence = await asyncio.to_thread(leases.take, self._database, LEASE, self._boot, LEASE_S)
            if fence is not None:
                for one in due:
                    await self._try_to_judge(one, fence)
        if watched or self._told is None or self._told.rows:
            found = await asyncio.to_thread(self._scores)
            packed = msgspec.msgpack.encode(found)  # it may hold NaN, which equals nothing
            if packed != self._packed:
                self._told, self._packed = found, packed
                self._tell(found)
        return watched

    async def _try_to_judge(self, one: WatchedModel, fence: Fence) -> None:
        try:
            await asyncio.to_thread(self._judge, one, fence)
        except (LostLease, DatabaseGone):
            raise
        except Exception as error:  # noqa: BLE001 - one model must not stop all others
            self._looked[one.model] = utc_now()
            if self._failures.get(one.model) != str(error):
                self._failures[one.model] = str(error)
                _log.error("drift of %s is not judged. This is a bug.", one.model, exc_info=error)
        else:
            self._failures.pop(one.model, None)

    def _due(self, now: datetime) -> tuple[bool, list[WatchedModel]]:
        with self._database.reading() as session:
            watched = service.watched_models(session)
            judged = findings.judged_at(session) if watched else {}
        due = [one for one in watched if self._is_due(one, judged.get(one.model), now)]
        return bool(watched), due

    def _is_due(self, one: WatchedModel, judged: datetime | None, now: datetime) -> bool:
        """At once where terms or reference are others. Also where there is nothing to judge, and
        so no row of when that was."""
        last = max(filter(None, (judged, self._looked.get(one.model))), default=None)
        pause_s = due_every_s(one.terms)
        if judged is None:
            pause_s = min(pause_s, FIRST_S)
        if last is not None and last >= one.updated_at and (now - last).total_seconds() < pause_s:
            return False
        self._looked[one.model] = now
        return True

    def _judge(self, watched: WatchedModel, fence: Fence) -> None:
        """Every version of which anything was counted within the terms' window."""
        terms, model = watched.terms, watched.model
        with self._database.change(SYSTEM, fence) as tx:
            until = tx.now.timestamp()
            since = until - terms.window_s
            numbers = windows.versions_between(tx.session, model, since, until)
            judged = numbers[: findings.MOST_VERSIONS]
            tx.alone()
            for version in judged:
                current = windows.read_windows(tx.session, model, version, since, until)
                reference, missing = service.reference_of(tx.session, watched, version)
                verdict = judge_drift(reference, current, terms, missing)
                findings.record_verdict(tx, current, verdict, terms)
            findings.forget_findings(tx, model, judged)
        self._merge_hours(fence)

    def _merge_hours(self, fence: Fence) -> None:
        for _ in range(MOST_HOURS):
            with self._database.change(SYSTEM, fence) as tx:
                if not windows.merge_hour(tx):
                    return

    def _store(self, window: DriftWindow) -> None:
        with self._database.change(self._actor) as tx:
            if any(row.profile for row in window.rows):
                tx.alone()  # another server may bring the same profile now
            windows.store_window(tx, window)
            service.keep_profiles(tx, window.rows)

    def _scores(self) -> DriftScores:
        with self._database.reading() as session:
            return findings.scores(session)
