"""The gateway's side of control: its child process, the link to it, and what came over it.

Nothing here is waited for by a request. Without a control process the last good desired state,
kept on disk, is what holds.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from control.desired import Desired
from repository.model import Snapshot
from server.served import VersionRow
from server.settings.table import Settings
from server.wanted import disk, places
from server.wanted.child import ControlChild
from server.wanted.facts import facts
from server.wanted.link import Answers, Counts, Link

BUSY_TICK_S, QUIET_TICK_S = 0.1, 2.0
"""Between two looks at what to report, while something is being loaded and while nothing is."""

_log = logging.getLogger(__name__)


class Look(NamedTuple):
    """The fleet at one moment: `settled` when nothing is being changed, `folders` still read."""

    rows: Sequence[VersionRow]
    settled: bool
    folders: set[Path]


class Control:
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
    ) -> None:
        """`desired`: what the disk has, in force until the control process tells of something."""
        self._state_dir = settings.state_dir
        self._apply = apply
        self._look = look
        self._followed = 0
        self.desired = self._kept = desired
        server, sockets = places.server_id(settings.state_dir), places.sockets(settings.state_dir)
        self.child = ControlChild(facts(settings, server))
        self.link = Link(sockets / places.LINK, server, self._told, self._report, counts, answers)
        self._tasks: list[asyncio.Task[None]] = []
        self._keeping: asyncio.Task[None] | None = None
        self._told_news = asyncio.Event()
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

    def followed(self, snapshot: Snapshot) -> None:
        """The fleet follows `snapshot` now."""
        self._followed = snapshot.desired
        self.link.report()

    def _told(self, desired: Desired) -> None:
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
        while not self._ended:
            await self._told_news.wait()
            self._told_news.clear()
            if self._kept is not self.desired:
                self._kept = self.desired
                await asyncio.to_thread(self._write, self._kept)

    def _write(self, desired: Desired) -> None:
        try:
            disk.keep(self._state_dir, desired)
        except OSError as error:
            _log.error("desired state cannot be kept in %s: %s", self._state_dir, error)

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
