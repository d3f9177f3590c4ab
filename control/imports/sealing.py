"""What was fetched becomes a snapshot: laid out beside what the model had, looked at, sealed."""

import asyncio
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event

import anyio.to_thread
from sqlalchemy import func, select

from control.deployments.sealed_model import SealedModel
from control.git.push.examine import sealed_model
from control.git.push.inspect import Inspector
from control.git.push.off_loop import held
from control.git.push.version_checks import VersionChecks
from control.imports.plan import SnapshotPlan, plan
from control.repository_settings import RepositorySettings
from control.sql.database import Database
from control.state_paths import SNAPSHOTS
from control.tables import Model, Version
from repository.errors import RepositoryError
from repository.files.durable import CHUNK_BYTES, open_file
from repository.findings import reason
from repository.snapshots import manifest as manifests
from repository.snapshots.digest import FileEntry
from repository.snapshots.write import Draft, SnapshotWriter
from repository.sources.threads import Stopped, stoppable

SETTINGS = RepositorySettings()
"""What a git repository takes unless told otherwise goes for every import."""


SnapshotPlanner = Callable[[Sequence[str], Sequence[FileEntry], int], SnapshotPlan]
"""From the files there are, those of the deployed snapshot, and the model's highest version."""


class UnservableImport(RepositoryError):
    """What was fetched is not what this server may serve; says every reason."""


@dataclass(frozen=True, slots=True)
class SealedImport:
    """A sealed snapshot, and which of its versions were fetched."""

    sealed: SealedModel
    brought: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _PreviousSnapshot:
    """What a model has: its deployed snapshot, if any, with its files; its highest number ever."""

    snapshot: Path | None
    files: tuple[FileEntry, ...]
    highest: int


class ImportSealer:
    """Makes snapshots in the store. `turn` is held from a seal until its snapshot is deployed, so
    that each sees what the one before made."""

    def __init__(self, database: Database, store: Path, checks: VersionChecks) -> None:
        self._database = database
        self._snapshots = store / SNAPSHOTS
        self._inspector = Inspector(checks, SETTINGS)
        self.turn = asyncio.Lock()

    async def seal(self, model: str, version: int | None, fetched: Path) -> SealedImport:
        """The files below `fetched` as a snapshot of `model`, with the versions that it had.

        Raises RepositoryError, ControlError, OSError.
        """

        def planned(
            paths: Sequence[str], previous: Sequence[FileEntry], highest: int
        ) -> SnapshotPlan:
            return plan(paths, version, previous, highest, SETTINGS.formats)

        return await self.seal_planned(model, fetched, planned)

    async def seal_planned(
        self, model: str, fetched: Path, planner: SnapshotPlanner
    ) -> SealedImport:
        """The files below `fetched` as `planner` places them. Raises as `seal` does."""
        before = await anyio.to_thread.run_sync(self._before, model)
        paths = await anyio.to_thread.run_sync(_files, fetched)
        planned = planner(paths, before.files, before.highest)
        writer = SnapshotWriter(self._snapshots)
        async with held(lambda: writer.begin(model, before.snapshot)) as draft:
            await stoppable(lambda stop: _lay_out(draft, planned, fetched, before, stop))
            inspected = await self._inspector.inspect(draft.folder, draft.files, model)
            if inspected.findings:
                raise UnservableImport(reason(inspected.findings))
            if inspected.callees:
                names = ", ".join(sorted(inspected.callees))
                raise UnservableImport(
                    f"its parameter 'calls' or its ensemble's steps let whoever may use it use "
                    f"{names} as well, which an import may not bring; push the model instead"
                )
            sealed = await anyio.to_thread.run_sync(draft.seal)
        return SealedImport(sealed_model(sealed, inspected), planned.brought)

    def _before(self, model: str) -> _PreviousSnapshot:
        with self._database.reading() as session:
            deployed = select(Model.snapshot_digest).where(Model.name == model)
            digest = session.scalar(deployed)
            numbers = select(func.max(Version.number)).where(Version.model == model)
            highest = session.scalar(numbers) or 0
        if digest is None:
            return _PreviousSnapshot(None, (), highest)
        snapshot = self._snapshots / digest
        return _PreviousSnapshot(snapshot, manifests.read(snapshot).files, highest)


def _lay_out(
    draft: Draft, planned: SnapshotPlan, fetched: Path, before: _PreviousSnapshot, stop: Event
) -> None:
    for target, path in sorted(planned.placed.items()):
        draft.add(target, _chunks(fetched / path, stop))
    for file in planned.kept:
        assert before.snapshot is not None
        source = before.snapshot / draft.folder.name / file.path
        draft.link(file.path, source, file.sha256, file.size_bytes)


def _chunks(path: Path, stop: Event) -> Iterator[bytes]:
    with open(open_file(path), "rb", buffering=0) as file:
        while chunk := file.read(CHUNK_BYTES):
            if stop.is_set():
                raise Stopped
            yield chunk


def _files(folder: Path) -> Sequence[str]:
    return [
        os.path.relpath(os.path.join(above, name), folder)
        for above, _, names in os.walk(folder)
        for name in names
    ]
