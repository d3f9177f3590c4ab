"""The pump of experiments: writes down which units gateways say have met which arm, and what
clients said of answers; while it holds the lease, it also keeps the points of charts."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from control.errors import ControlError, DatabaseGone, Invalid
from control.experiments import service, stamp
from control.experiments.analysis import record_points
from control.experiments.metrics import MetricSource
from control.experiments.records.exposures import ExposureEvent, expose
from control.experiments.records.feedback import ClientFeedback, feedback, measured
from control.gateways.messages import ArmReports, Exposures, FeedbackRows
from control.loops.arm_deltas import ArmDelta, ArmDeltas, measured_by
from control.loops.deployer import LEASE, LEASE_S
from control.loops.wake_event import IdleSeconds, WakeEvent, as_usual
from control.sql import leases
from control.sql.database import SYSTEM, Actor, Database, Transaction

POINTS_S = 5.0
"""Between two looks at whether a chart is due for a point."""

GONE_TICK_S = 2.0
"""Between two tries while the database does not answer."""

MOST_WAITING, AT_ONCE = 50_000, 1_000
"""Rows that wait for the database, and how many one transaction takes: some 0.1 s of SQLite's one
writer."""

MOST_COUNTS = 2_000
"""Counts of arms, a histogram each, that wait for the database."""

_log = logging.getLogger(__name__)


class ExperimentRecorder:
    """On the loop. `key` is what stamps are signed with; `boot` is this control process's."""

    def __init__(
        self,
        database: Database,
        server: str,
        boot: str,
        key: bytes,
        idle_s: IdleSeconds = as_usual,
    ) -> None:
        self._database = database
        self._actor = Actor(f"server:{server}", "system")
        self._boot = boot
        self._key = key
        self._exposures: deque[ExposureEvent] = deque()
        self._feedback: deque[ClientFeedback] = deque()
        self._answered: deque[ArmDelta] = deque()
        self._increments = ArmDeltas()
        self._news = WakeEvent(idle_s)
        self._running = True
        """Whether an experiment was, at the last look; taken for true during one."""
        self._changed = False
        """Whether something was committed since, which may have started one."""
        self.dropped = 0

    def committed(self, event: object = None) -> None:
        """See `WakeEvent.committed`."""
        self._changed = True
        self._news.committed(event)

    async def record(self, message: Exposures | FeedbackRows) -> None:
        """Have the database know of them soon."""
        if isinstance(message, Exposures):
            self._keep(self._exposures, list(exposure_events(message)))
        else:
            self._keep(self._feedback, list(client_feedback(message, self._key)))
        self._news.ring()

    async def counted(self, reports: ArmReports) -> None:
        """What routes have counted: for metrics that servers count."""
        rows = self._increments.update(reports)
        if (self._running or self._changed) and len(self._answered) < MOST_COUNTS:
            self._answered.extend(rows)

    async def run(self) -> None:
        """Until cancelled."""
        looked = 0.0
        while True:
            pause_s, rest = POINTS_S, self._news.rest
            try:
                await self._write(self._exposures, lambda tx, rows: expose(tx, rows))
                await self._write(self._feedback, lambda tx, rows: feedback(tx, rows))
                await self._write_counts()
                now = asyncio.get_running_loop().time()
                if not self._running or now - looked >= POINTS_S:
                    looked = now
                    self._changed, self._running = False, True
                    self._running = await asyncio.to_thread(self._record)
                if not self._running:
                    rest = self._news.rest_idle
            except DatabaseGone as error:
                pause_s = GONE_TICK_S
                _log.debug("experiments are blocked: %s", error)
                self._news.hush()
            await rest(pause_s)

    def _keep(self, waiting: deque[Any], rows: Sequence[Any]) -> None:
        room = max(0, MOST_WAITING - len(waiting))
        if room < len(rows):
            if not self.dropped:
                _log.error("rows of experiments are dropped: the database refuses them")
            self.dropped += len(rows) - room
        waiting.extend(rows[:room])

    async def _write_counts(self) -> None:
        before = len(self._answered)
        if before and not await asyncio.to_thread(self._is_measured):
            for _ in range(before):  # others came meanwhile
                self._answered.popleft()
        await self._write(self._answered, _measure)

    def _is_measured(self) -> bool:
        with self._database.reading() as session:
            trials = service.running(session)
        return any(
            one.source is MetricSource.SERVER for view in trials for one in view.terms.metrics
        )

    async def _write(
        self, waiting: deque[Any], write: Callable[[Transaction, list[Any]], object]
    ) -> None:
        """What waits, in order; rows stay until they are committed."""
        while waiting:
            rows = [waiting[number] for number in range(min(AT_ONCE, len(waiting)))]
            try:
                await asyncio.to_thread(self._commit, write, rows)
            except DatabaseGone:
                raise
            except ControlError as error:
                _log.error("%d rows of experiments are dropped: %s", len(rows), error)
            for _ in rows:
                waiting.popleft()

    def _commit(self, write: Callable[[Transaction, list[Any]], object], rows: list[Any]) -> None:
        with self._database.change(self._actor) as tx:
            write(tx, rows)

    def _record(self) -> bool:
        """Whether any runs. Raises DatabaseGone."""
        with self._database.reading() as session:
            if not service.running(session):
                return False
        fence = leases.take(self._database, LEASE, self._boot, LEASE_S)
        if fence is None:
            return True
        try:
            with self._database.change(SYSTEM, fence) as tx:
                record_points(tx)
        except DatabaseGone:
            raise
        except ControlError as error:
            _log.info("experiments: %s", error)
        return True


def _measure(tx: Transaction, rows: list[ArmDelta]) -> None:
    found = measured_by(service.running(tx.session), rows)
    if found:
        measured(tx, found)


def exposure_events(message: Exposures) -> Iterator[ExposureEvent]:
    for row in message.rows:
        yield ExposureEvent(row.experiment, row.unit, row.arm, _moment(row.at))


def client_feedback(message: FeedbackRows, key: bytes) -> Iterator[ClientFeedback]:
    """Values with stamps that are no good, or of another name, are left out."""
    for row in message.rows:
        read = None
        if row.stamp:
            try:
                read = stamp.read(key, row.stamp, row.at)
            except Invalid:
                continue
            if row.name not in (read.route.route, read.route.model):
                continue
        yield ClientFeedback(
            row.metric,
            row.value,
            _moment(row.at),
            read,
            row.experiment,
            row.name,
            row.unit,
            row.key,
        )


def _moment(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)
