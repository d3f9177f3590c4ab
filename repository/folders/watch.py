"""The repositories, watched: a new Snapshot whenever something has changed and come to rest.

The decision is `repository.folders.debounce`'s; this is its pump. File system events only say
"look now": whatever they miss is seen by the next scan, `poll_secs` later at the latest.
"""

import asyncio
import logging
import os
import threading
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from watchfiles import awatch

from repository.errors import BadRepository
from repository.files.plain_files import changes_unseen
from repository.folders.debounce import NOTHING, DebounceState, settle
from repository.folders.presence import Root, States, kept, missing
from repository.folders.snapshot import PATIENCE_S, Scanner
from repository.model import Snapshot

logger = logging.getLogger(__name__)

SETTLE_SECS = 0.25
"""Between two scans while something moves; also the least time between any two scans."""

FOLLOWING_S = 2.0
"""How long a scan waits for one folder; what takes longer is read beside the others."""

NO_EVENTS_POLL_SECS = 1.0
"""Between scans, at most, when events were asked for and the system has none or not all to give."""

EVENTS_STEP_MS = 200
"""Between two looks of watchfiles' thread at what has happened; what comes within one counts once.
At its usual 50 ms these looks alone take a tenth of a percent of a core."""


class WatchedRepository:
    """What exists, now and from now on. One life: once `close`d, or once `changes()` ended, over.

    `snapshot()` may be called from any thread, also while `changes()` runs; everything else
    belongs to the loop. It loads nothing and calls nobody.
    """

    def __init__(
        self,
        roots: Sequence[Path],
        poll_secs: float = 15.0,
        use_events: bool = True,
        config_name: str = "",
        allow_empty: bool = False,
        allow_missing: bool = False,
    ) -> None:
        """`allow_empty`: believe a root that turns empty at once; `allow_missing`: one that cannot
        be read at the start counts as empty until it can. `poll_secs` 0: nothing is followed."""
        self._scanner = Scanner(_different(roots), config_name)
        self._allow_empty = allow_empty
        self._allow_missing = allow_missing
        self._poll_secs = poll_secs
        self._use_events = use_events
        self._scanning = threading.Lock()  # the scanner has two callers, snapshot and changes
        self._settled: DebounceState = NOTHING
        self._reported: tuple[States, Mapping[int, str]] | None = None
        self._roots: Mapping[int, Root] = {}
        self._lost: dict[int, str] = {}
        self._suspected: dict[int, str] = {}
        self._woken = asyncio.Event()
        self._closed = asyncio.Event()

    def snapshot(self) -> Snapshot:
        """Scan now and believe it, copied halfway or not; blocks for the scan.

        Raises `BadRepository` when a root cannot be read. The first one is what `changes()`
        starts from; later ones do not keep a change from being reported there.
        """
        with self._scanning:
            states = self._look(first=self._reported is None)
            self._settled = DebounceState(states, states)
            self._lose(self._suspected)
            if self._reported is None:
                self._reported = (states, self._lost)
            return self._scanner.build(states, self._lost)

    async def changes(self) -> AsyncGenerator[Snapshot, None]:
        """Each new state of the repositories, until `close`; the loop is never blocked by a scan.

        A root that cannot be read any more changes nothing: its models stay as last seen.
        """
        listening = asyncio.create_task(self._listen())
        try:
            while not self._closed.is_set():
                snapshot = await asyncio.to_thread(self._observe)
                if snapshot is not None and not self._closed.is_set():
                    yield snapshot
                await self._pause()
        finally:
            self.close()
            await listening

    def close(self) -> None:
        """End `changes()`; call it on the loop."""
        self._closed.set()
        self._woken.set()

    def _observe(self) -> Snapshot | None:
        """Scan; a Snapshot when what may be believed differs from what was reported last."""
        with self._scanning:
            suspected = self._suspected
            states = self._look()
            self._settled = settle(self._settled, states)
            if suspected.keys() == self._suspected.keys():  # as two scans in a row saw it
                self._lose(self._suspected)
            made = self._settled.stable, self._lost
            if made == (self._reported or ({}, {})):
                return None
            self._reported = made
            return self._scanner.build(*made)

    def _look(self, first: bool = False) -> States:
        """Scan; the models of a root that is not to be believed are as they were. Raises
        BadRepository when one cannot be read at the `first`, unless that is allowed."""
        states, roots = self._scanner.look_at_roots(PATIENCE_S if first else FOLLOWING_S)
        problems = [root.problem for root in roots.values() if root.problem]
        if problems and first and not self._allow_missing:
            raise BadRepository(problems[0])
        before = self._settled.stable
        found = missing(before, self._roots, states, roots)
        if self._allow_empty:
            found = {index: why for index, why in found.items() if roots[index].problem}
        self._suspected = found
        self._roots = {**self._roots, **{i: one for i, one in roots.items() if i not in found}}
        return kept(before, states, found)

    def _lose(self, lost: dict[int, str]) -> None:
        for index in lost.keys() - self._lost.keys():
            logger.warning("%s", lost[index])
        for index in self._lost.keys() - lost.keys():
            logger.info("model repository '%s' is there again", self._scanner.roots[index])
        self._lost = lost

    async def _pause(self) -> None:
        await _wait(self._closed, SETTLE_SECS)
        if self._settled.at_rest and self._suspected.keys() == self._lost.keys():
            await _wait(self._woken, self._poll_secs)
        self._woken.clear()

    async def _listen(self) -> None:
        """Wake the pump on events; without them let it poll more often instead."""
        if not self._use_events:
            return
        try:
            if await asyncio.to_thread(_is_shared, self._scanner.roots):
                self._poll_secs = min(self._poll_secs, NO_EVENTS_POLL_SECS)
            async for _ in awatch(
                *self._scanner.roots,
                watch_filter=None,
                debounce=EVENTS_STEP_MS,
                step=EVENTS_STEP_MS,
                stop_event=self._closed,
            ):
                self._woken.set()
        except (OSError, RuntimeError) as error:
            self._poll_secs = min(self._poll_secs, NO_EVENTS_POLL_SECS)
            self._woken.set()
            logger.warning(
                "no file system events (%s); polling every %g s instead", error, self._poll_secs
            )


def _different(roots: Sequence[Path]) -> Sequence[Path]:
    """A folder that is named twice counts once."""
    return tuple({os.path.realpath(root): root for root in reversed(roots)}.values())[::-1]


def _is_shared(roots: Sequence[Path]) -> bool:
    """Whether other machines may write to a root or to a model's folder, which may be a mount or a
    link; blocks. Raises OSError for a root."""
    for root in roots:
        if changes_unseen(root):
            return True
        for entry in root.iterdir():
            with suppress(OSError):  # it leads nowhere
                if changes_unseen(entry):
                    return True
    return False


async def _wait(event: asyncio.Event, secs: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(secs):
            await event.wait()
