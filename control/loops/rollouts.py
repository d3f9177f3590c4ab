"""The pump of rollouts: writes down what this server's arms have counted, and, while it holds the
lease, looks at every rollout once a second and makes the move it is time for.

What is to be done is `control.rollouts.policy`'s to say. A pump that dies leaves every weight as
it is; the next one goes on from the rows.
"""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress

from control.errors import ControlError, DatabaseGone, LostLease, NotFound
from control.gateways.arm_reports import LatestArmReports
from control.gateways.messages import ArmReports
from control.loops.deployer import LEASE, LEASE_S
from control.loops.wake_event import IdleSeconds, WakeEvent, as_usual
from control.rollouts import counts, queries, service
from control.rollouts.counts import GatewayReport
from control.rollouts.route_weights import RolloutRoutes
from control.rollouts.signals import signals_of
from control.sql import leases
from control.sql.database import SYSTEM, Actor, Database, Fence

TICK_S = 1.0
"""Between two looks. The lease is the deployer's: a deployment begins rollouts, and the fences of
one rollout must come from one lease."""

GONE_TICK_S = 2.0
"""Between two tries while the database does not answer."""

RETELL_S = 5.0
"""An unchanged count is written again after so long: `counts.STALE_S` is what a silence may be."""

MOST_MOVES = 20
"""In a row, of one rollout in one look."""

_log = logging.getLogger(__name__)


class RolloutController:
    """On the loop. `server` is this server's id, `boot` this control process's; `idle_s`
    says how long to rest while none is under way."""

    def __init__(
        self,
        database: Database,
        server: str,
        boot: str,
        idle_s: IdleSeconds = as_usual,
    ) -> None:
        self._database = database
        self._server = server
        self._boot = boot
        self._latest: dict[str, LatestArmReports] = {}
        self._reports: dict[str, tuple[str, GatewayReport]] = {}
        self._due: set[str] = set()
        self._waits: dict[str, str] = {}
        self._idle = True
        self._news = WakeEvent(idle_s)
        self.committed = self._news.committed

    def ring(self) -> None:
        """Somebody has begun a rollout, or told one what to do."""
        self._news.ring()

    async def on_arm_reports(self, reports: ArmReports) -> None:
        """A gateway has counted."""
        latest = self._latest.setdefault(reports.server, LatestArmReports())
        for rollout, report in latest.update(reports).items():
            self._reports[rollout] = (reports.boot, report)
            self._due.add(rollout)
        if self._due and self._idle:
            self._news.ring()

    async def run(self) -> None:
        """Until cancelled; then the lease is let go."""
        retold = asyncio.get_running_loop().time()
        try:
            while True:
                pause_s, rest = GONE_TICK_S, self._news.rest
                now = asyncio.get_running_loop().time()
                if now - retold > RETELL_S:
                    retold, self._due = now, set(self._reports)
                try:
                    await self._write_counts()
                    self._idle = not await self._look()
                    pause_s = TICK_S
                    if self._idle:
                        rest = self._news.rest_idle
                except DatabaseGone as error:
                    _log.debug("rollouts are blocked: %s", error)
                except LostLease as error:
                    pause_s = TICK_S
                    _log.info("rollouts: %s", error)
                await rest(pause_s)
        finally:
            with suppress(ControlError):
                await asyncio.shield(
                    asyncio.to_thread(leases.release, self._database, LEASE, self._boot)
                )

    async def _write_counts(self) -> None:
        due, self._due = self._due, set()
        reports = {rollout: self._reports[rollout] for rollout in due}
        if not reports:
            return
        try:
            over = await asyncio.to_thread(self._write, reports)
        except DatabaseGone:
            self._due |= due
            raise
        for rollout in over:
            if self._reports.get(rollout) is reports[rollout]:
                del self._reports[rollout]  # it is told of anew if it is tried again

    def _write(self, reports: Mapping[str, tuple[str, GatewayReport]]) -> set[str]:
        """In one transaction; the rollouts that have ended, or that there are no more."""
        over = set()
        with self._database.change(Actor(f"server:{self._server}", "system")) as tx:
            for rollout, (process, report) in sorted(reports.items()):
                try:
                    if counts.record(tx, rollout, self._server, process, report):
                        over.add(rollout)
                except NotFound:
                    over.add(rollout)
        return over

    async def _look(self) -> bool:
        """Whether any is under way."""
        under_way = await asyncio.to_thread(self._under_way)
        if not under_way:
            return False
        fence = await asyncio.to_thread(leases.take, self._database, LEASE, self._boot, LEASE_S)
        if fence is None:
            return True
        self._waits = {rollout: self._waits.get(rollout, "") for rollout in under_way}
        for rollout in under_way:
            try:
                await asyncio.to_thread(self._tick, rollout, fence)
            except (LostLease, DatabaseGone):
                raise
            except Exception as error:  # noqa: BLE001 - one rollout must not stop all others
                self._say(rollout, error)
        return True

    def _say(self, rollout: str, error: Exception) -> None:
        """Why one does not move, once and not at every look."""
        if self._waits[rollout] == str(error):
            return
        self._waits[rollout] = str(error)
        if isinstance(error, ControlError):  # e.g. its route was killed
            _log.warning("rollout %s is blocked: %s", rollout, error)
        else:
            _log.error("rollout %s failed to advance. This is a bug.", rollout, exc_info=error)

    def _under_way(self) -> list[str]:
        with self._database.reading() as session:
            return queries.under_way(session)

    def _tick(self, rollout: str, fence: Fence) -> None:
        for _ in range(MOST_MOVES):
            with self._database.change(SYSTEM, fence) as tx:
                signals = signals_of(tx.session, rollout)
                tick = service.tick(tx, RolloutRoutes(), rollout, signals)
            if not tick.moved:
                return
