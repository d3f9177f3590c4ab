"""The desired-state client: the gateway's child process, the link to it, and what came over it.

Nothing here is waited for by a request. Without a control process the last good desired state,
kept on disk, is what holds.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from control.desired import Desired
from repository.model import Snapshot
from server.desired import disk, places
from server.desired.child import ControlChild, facts_of
from server.desired.link import Answers, Counts, Link
from server.routing.effective import Pending
from server.served import VersionRow
from server.settings.table import Settings

BUSY_TICK_S, QUIET_TICK_S = 0.1, 2.0
"""Between two looks at what to report, while something is being loaded and while nothing is."""

FETCH_TICK_S = 0.05
"""Between two looks whether a server that starts has loaded what it has heard."""

RETRY_S = 10.0
"""Between two tries to write what the disk did not take."""

_log = logging.getLogger(__name__)


class Look(NamedTuple):
    """The fleet at one moment: `settled` when nothing is being changed, `folders` still read,
    `pending` routes and aliases that are not in force as desired."""

    rows: Sequence[VersionRow]
    settled: bool
    folders: set[Path]
    pending: Sequence[Pending] = ()


class DesiredStateClient:
    """One gateway's; on the loop's thread. `apply` gets each newer desired state; `counts` is what
    routes have counted, `answers` what the control process may ask for."""

    def __init__(
        self,
        settings: Settings,
        desired: Desired,
        apply: Callable[[Desired], None],
        look: Callable[[], Look],
        counts: Counts,
        answers: Answers,
        in_force: Desired | None = None,
    ) -> None:
        """`desired`: what the disk has, in force until the control process tells of something;
        `in_force`: what it has to answer meanwhile, where that is something else."""
        self._state_dir = settings.state_dir
        self._apply = apply
        self._look = look
        self._followed = 0
        self.desired = self._kept = desired
        server, sockets = places.server_id(settings.state_dir), places.sockets(settings.state_dir)
        self.child = ControlChild(facts_of(settings, server))
        self.link = Link(sockets / places.LINK, server, self._told, self._report, counts, answers)
        self._in_force = self._kept_in_force = in_force
        self._tasks: list[asyncio.Task[None]] = []
        self._keeping: asyncio.Task[None] | None = None
        self._told_news = asyncio.Event()
        self._fetched = asyncio.Event()
        self._ended = False

    def start(self) -> None:
        """Start the process and the link; returns at once."""
        self._tasks = [
            asyncio.create_task(self.child.run()),
            asyncio.create_task(self.link.run()),
            asyncio.create_task(self._tick()),
        ]
        self._keeping = asyncio.create_task(self._keep())
        for task in (*self._tasks, self._keeping):
            task.add_done_callback(_tell_if_broken)

    async def stop(self) -> None:
        """End the link and the process; what came over it is on the disk then."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._ended = True
        self._told_news.set()
        if self._keeping is not None:
            await asyncio.wait([self._keeping])

    @property
    def has_fetched(self) -> bool:
        """Whether the control process has told anything since the start."""
        return self._fetched.is_set()

    async def fetched(self) -> None:
        """Return when the current desired state has been heard, and the fleet follows it."""
        await self._fetched.wait()
        while not self._is_current():  # noqa: ASYNC110 - the fleet has no event for it
            await asyncio.sleep(FETCH_TICK_S)

    def _is_current(self) -> bool:
        return self._followed == self.desired.revision and self._look().settled

    def followed(self, snapshot: Snapshot) -> None:
        """The fleet follows `snapshot` now."""
        self._followed = snapshot.desired
        self.link.report()

    def keep_in_force(self, in_force: Desired | None) -> None:
        """Have the disk know what answers while that is not what is desired; None when it is."""
        if in_force is None and self._in_force is None and self._kept_in_force is None:
            return
        self._in_force = in_force
        self._told_news.set()

    def _told(self, desired: Desired) -> None:
        self._fetched.set()
        if (desired.store, desired.revision) == (self.desired.store, self.desired.revision):
            return
        if desired.store == self.desired.store and desired.revision < self.desired.revision:
            _log.warning(
                "the control process offers revision %d after %d; a backup was restored, it seems",
                desired.revision,
                self.desired.revision,
            )
        self._apply(desired)
        self.desired = desired
        self._told_news.set()

    async def _keep(self) -> None:
        """On the disk, which may take its time, and not on the loop; of several that came
        meanwhile the last. A crash before that is as one before it came: it is told again."""
        all_kept = True
        while not self._ended or self._told_news.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._told_news.wait(), None if all_kept else RETRY_S)
            self._told_news.clear()
            all_kept = await self._keep_both(self.desired, self._in_force)

    async def _keep_both(self, desired: Desired, in_force: Desired | None) -> bool:
        """Whether the disk has both; what stands in for a desired state is there before it."""
        if in_force is not None and in_force is not self._kept_in_force:
            if not await self._write(disk.keep_in_force, in_force):
                return False
            self._kept_in_force = in_force
        if desired is not self._kept:
            if not await self._write(disk.keep, desired):
                return False
            self._kept = desired
        if in_force is None and self._kept_in_force is not None:
            if not await self._write(disk.keep_in_force, None):
                return False
            self._kept_in_force = None
        return True

    async def _write(self, keep: Callable[[Path, Any], None], state: Desired | None) -> bool:
        try:
            await asyncio.to_thread(keep, self._state_dir, state)
        except OSError as error:
            _log.error("desired state cannot be kept in %s: %s", self._state_dir, error)
            return False
        return True

    def _report(self) -> dict[str, Any]:
        seen = self._look()
        return {
            "kind": "loads",
            "revision": self._followed,
            "settled": seen.settled,
            "rows": [
                [row.name, row.version or 0, row.state.value, row.reason]
                for row in seen.rows
                if row.state is not None
            ],
            "pending": [[one.subject, one.reason] for one in seen.pending],
            "in_use": sorted({folder.parent.name for folder in seen.folders}),
        }

    async def _tick(self) -> None:
        while True:
            busy = not self._look().settled
            self.link.report()
            await asyncio.sleep(BUSY_TICK_S if busy else QUIET_TICK_S)


def _tell_if_broken(task: "asyncio.Task[None]") -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.critical("control is no longer followed. This is a bug.", exc_info=error)
