"""The desired-state client: the gateway's child process, the link to it, and what goes over it.

Nothing here is waited for by a request. Without a control process the last good desired state,
kept on disk, is what holds.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from control import state_paths
from control.desired import DesiredState
from control.gateways.messages import LoadReport, LoadRow
from repository.model import Snapshot
from server.desired.child import ControlChild
from server.desired.control_start import ControlStart
from server.desired.disk import DiskCopy
from server.desired.link import Answers, ControlLink, Counts, Stored
from server.health.monitor import HealthRow
from server.routing.effective import PendingSubject
from server.settings.table import Settings

BUSY_TICK_S, QUIET_TICK_S, LONGEST_TICK_S = 0.1, 2.0, 30.0
"""Between two looks at what to report, while something is being loaded and while nothing is; the
latter longer with hundreds of models."""

LOOK_SHARE = 0.0005
"""Of a core, that looks may take while nothing is being loaded."""

ROW_TICK_S = 0.03
"""Each loaded version adds so much to the longest pause: with few, one slow look delays nothing."""

FETCH_TICK_S = 0.05
"""Between two looks whether a server that starts has loaded what it has received."""

_log = logging.getLogger(__name__)


class FleetStatus(NamedTuple):
    """The fleet at one moment: `settled` when nothing is being changed, `folders` still read,
    `pending` routes and aliases that are not in force, which has this `revision`."""

    rows: Sequence[HealthRow]
    settled: bool
    folders: set[Path]
    pending: Sequence[PendingSubject] = ()
    revision: int = 0


class DesiredStateClient:
    """One gateway's; on the loop's thread. `want` gets each desired state that is told, `copy` is
    run meanwhile; `counts` is what routes have counted, `answers` what the control process may ask
    for, `stored` is told which windows of the time series it has."""

    def __init__(
        self,
        settings: Settings,
        want: Callable[[DesiredState], None],
        copy: DiskCopy,
        look: Callable[[], FleetStatus],
        counts: Counts,
        answers: Answers,
        stored: Stored,
    ) -> None:
        self._copy = copy
        self._look = look
        self._followed = 0
        server, sockets = (
            state_paths.server_id(settings.state_dir),
            state_paths.sockets(settings.state_dir),
        )
        self._server = server
        self.child = ControlChild(ControlStart(server=server, settings=settings))
        self.link = ControlLink(
            sockets / state_paths.LINK, server, want, self._report, counts, answers, stored
        )
        self._tasks: list[asyncio.Task[None]] = []
        self._keeping: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the process and the link; returns at once."""
        self._tasks = [
            asyncio.create_task(self.child.run()),
            asyncio.create_task(self.link.run()),
            asyncio.create_task(self._tick()),
        ]
        self._keeping = asyncio.create_task(self._copy.run())
        for task in (*self._tasks, self._keeping):
            task.add_done_callback(_tell_if_broken)

    async def stop(self) -> None:
        """End the link and the process; what came over it is on the disk then."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._copy.end()
        if self._keeping is not None:
            await asyncio.wait([self._keeping])

    @property
    def has_fetched(self) -> bool:
        """Whether the control process has told anything since the start."""
        return self.link.fetched.is_set()

    async def fetched(self) -> None:
        """Return when the current desired state has been received, and the fleet follows it."""
        await self.link.fetched.wait()
        while not self._is_current():  # noqa: ASYNC110 - the fleet has no event for it
            await asyncio.sleep(FETCH_TICK_S)

    def _is_current(self) -> bool:
        loads = self._look()
        return self._followed == loads.revision and loads.settled

    def followed(self, snapshot: Snapshot) -> None:
        """The fleet follows `snapshot` now."""
        self._followed = snapshot.desired
        self.link.report()

    def _report(self) -> LoadReport:
        loads = self._look()
        rows = (
            LoadRow(row.name, row.version or 0, row.state.value, row.reason, health, row.loaded_at)
            for row, health in loads.rows
            if row.state is not None
        )
        return LoadReport(
            server=self._server,
            revision=self._followed,
            settled=loads.settled,
            rows=tuple(rows),
            in_use=frozenset(folder.parent.name for folder in loads.folders),
            pending=tuple((one.subject, one.reason) for one in loads.pending),
        )

    async def _tick(self) -> None:
        while True:
            began = time.thread_time()  # on the clock it may have waited for a core
            loads = self._look()
            took_s = 2 * (time.thread_time() - began)  # the link looks, too
            self.link.report()
            pause_s = quiet_pause_s(took_s, len(loads.rows)) if loads.settled else BUSY_TICK_S
            await asyncio.sleep(pause_s)


def quiet_pause_s(took_s: float, rows: int) -> float:
    """Until the next look at so many loaded versions, after one of `took_s` of CPU time."""
    longest = min(QUIET_TICK_S + rows * ROW_TICK_S, LONGEST_TICK_S)
    return min(max(QUIET_TICK_S, took_s / LOOK_SHARE), longest)


def _tell_if_broken(task: "asyncio.Task[None]") -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.critical("the control process is no longer followed. This is a bug.", exc_info=error)
