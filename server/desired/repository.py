"""The repository as the fleet sees it: the watched folders and the desired snapshots in one.

Stands in for `repository.folders.watch.WatchedRepository` with the same two methods.
"""

import asyncio
import threading
from collections.abc import AsyncGenerator

from control.desired import DesiredState
from repository.folders.watch import WatchedRepository
from repository.model import Snapshot
from repository.snapshots.sealed_models import SnapshotStore
from server.desired.merge import merge


class DesiredRepository:
    """`follow_folders` says whether changes in the folders count; those of `want` always do."""

    def __init__(
        self,
        folders: WatchedRepository,
        store: SnapshotStore,
        desired: DesiredState,
        follow_folders: bool,
    ) -> None:
        self._folders = folders
        self._store = store
        self._follow_folders = follow_folders
        self._scan: Snapshot | None = None
        self._merging = threading.Lock()  # the store has two callers, snapshot and changes
        self._news = asyncio.Event()
        self._closed = False
        self.desired = desired

    def want(self, desired: DesiredState) -> None:
        """From now on; `changes` yields what it makes of the repository. On the loop's thread."""
        self.desired = desired
        self._news.set()

    def snapshot(self) -> Snapshot:
        """Look at the folders now; blocks. Raises BadRepository."""
        scan = self._folders.snapshot()
        self._remember(scan)
        return self._merged(scan)

    async def changes(self) -> AsyncGenerator[Snapshot, None]:
        """Each new state, until `close`; call `snapshot` first. Raises what keeps the folders from
        being followed."""
        watching = asyncio.create_task(self._watch()) if self._follow_folders else None
        try:
            while True:
                await self._news.wait()
                self._news.clear()
                if self._closed or (watching is not None and watching.done()):
                    return
                if self._scan is not None:
                    yield await asyncio.to_thread(self._merged, self._scan)
        finally:
            self._folders.close()
            if watching is not None:
                await watching

    def close(self) -> None:
        """End `changes`; call it on the loop."""
        self._closed = True
        self._news.set()
        self._folders.close()

    async def _watch(self) -> None:
        try:
            async for scan in self._folders.changes():
                self._remember(scan)
                self._news.set()
        finally:
            self._news.set()

    def _remember(self, scan: Snapshot) -> None:
        """A look that took longer than a later one does not bring back what was before."""
        if self._scan is None or scan.revision > self._scan.revision:
            self._scan = scan

    def _merged(self, scan: Snapshot) -> Snapshot:
        with self._merging:
            merged = merge(scan, self.desired, self._store.sealed)
            self._store.forget_others()  # versions that were replaced, most of all
            return merged
