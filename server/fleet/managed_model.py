"""One model in the fleet: what is wanted of it, what it has, and what may be said of it.

State without any doing: `server.fleet.fleet` changes it, on the loop's thread.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from repository.model import ModelFolder, PinnedVersion
from repository.policy import no_version_reason, selected_versions
from schedulers.sequences.batcher import SequenceBatcher
from server.errors import ModelLoading, NotReady, ServingError, UnknownModel
from server.fleet.built_version import BuiltVersion
from server.fleet.memory.shortage import MOST_TRIES, pause_s, shortage_of
from server.fleet.placement import describe
from server.fleet.plan import (
    BuildDigests,
    ModelChange,
    ObservedVersions,
    basis_of,
    next_change,
    target_versions,
)
from server.fleet.residency.on_demand import OnDemandVersion
from server.routing.effective import NOT_LOADED, TargetState
from server.served_version import (
    RESTARTING,
    ServedVersion,
    ServingState,
    VersionRow,
    not_ready_text,
)


class LoadedVersion(NamedTuple):
    """A version that serves, the digests it was built from, and since when, in seconds since the
    epoch."""

    built: BuiltVersion
    basis: BuildDigests
    since: float = 0.0


class VersionFailure(NamedTuple):
    """What could not be loaded from these digests, and why. `pause_s`: after which it is tried
    again by itself, None for never; `tries` that have failed so far."""

    basis: BuildDigests
    reason: str
    pause_s: float | None = None
    tries: int = 1


class ManagedModel:
    """One model. `folder` is what to become (None: not wanted), `changing` what it is becoming
    just now; `problem` is why the model's folder as it stands now cannot be followed, while what
    was loaded before keeps serving. `doing`: what the loads are at, where they take long."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.folder: ModelFolder | None = None
        self.problem = ""
        self.present = False
        self.on_disk: set[int] = set()
        self.serving: dict[int, LoadedVersion] = {}
        self.loading: set[int] = set()
        self.doing: dict[int, str] = {}
        self.failed: dict[int, VersionFailure] = {}
        self.dropped: dict[int, BuildDigests] = {}
        self.tries: dict[int, tuple[BuildDigests, int]] = {}
        self.has_served = False
        self.draining: list[tuple[int, BuiltVersion]] = []
        self.unloaded: set[int] = set()
        self.changing: ModelFolder | None = None
        self.task: asyncio.Task[None] | None = None

    def aim(self, folder: ModelFolder | None, problem: str) -> None:
        """Want the model as it stands in `folder`; with a problem, as it was wanted before."""
        self.see(folder, problem)
        self.problem = problem
        if folder is not None and not folder.only_pinned and not selected_versions(folder):
            self.problem = no_version_reason(folder.config)
        if folder is not None or not self.present:
            self.folder = folder

    def see(self, folder: ModelFolder | None, problem: str) -> None:
        """Note what is on disk, without wanting anything of it."""
        self.present = folder is not None or bool(problem)
        if not problem:
            self.on_disk = {version.number for version in folder.versions} if folder else set()
        self.unloaded &= self.on_disk

    def pin(self, pins: tuple[PinnedVersion, ...]) -> None:
        """Keep what is referred to now, beside what was wanted already."""
        if self.folder is not None and self.folder.pins != pins:
            self.folder = replace(self.folder, pins=pins)

    def release(self) -> None:
        """Want nothing of it."""
        self.folder, self.problem = None, ""

    def next_change(self) -> ModelChange | None:
        """The next step towards `folder`; forgets failures of digests that are gone."""
        current = self._target()
        self.failed = {n: f for n, f in self.failed.items() if current.get(n) == f.basis}
        self.dropped = {n: basis for n, basis in self.dropped.items() if current.get(n) == basis}
        held = ObservedVersions(
            {number: occupant.basis for number, occupant in self.serving.items()},
            {number: failure.basis for number, failure in self.failed.items()},
            self.dropped,
        )
        return next_change(self.folder, held)

    def _target(self) -> dict[int, BuildDigests]:
        folder = self.folder
        if folder is None:
            return {}
        return {n: basis_of(folder, version) for n, version in target_versions(folder).items()}

    def fail(
        self, number: int, basis: BuildDigests, error: Exception, reason: str
    ) -> VersionFailure:
        """Note a load that failed; for want of a resource it is to be tried again."""
        shortage = shortage_of(error)
        tried_basis, tries = self.tries.get(number, (basis, 0))
        tries = tries + 1 if tried_basis == basis else 1
        pause = pause_s(tries) if shortage else None
        if shortage:
            self.tries[number] = (basis, tries)
            reason += f" (for lack of {shortage}; {_when(pause, tries)})"
        self.failed[number] = failure = VersionFailure(basis, reason, pause, tries)
        return failure

    @contextmanager
    def waiting(self, change: ModelChange) -> Iterator[None]:
        """Inside, what the change would load shows as loading: it waits for other models."""
        numbers = {version.number for version in change.load} - self.loading
        self.loading |= numbers
        try:
            yield
        finally:
            self.loading -= numbers

    def forget(self, number: int, failure: VersionFailure) -> bool:
        """Let the next change try this again; False when it is not what failed last."""
        if self.failed.get(number) is not failure:
            return False
        del self.failed[number]
        return True

    def forget_failures(self) -> None:
        """Let the next change try everything again: somebody asked for it."""
        self.tries.clear()
        self.failed.clear()
        self.dropped.clear()

    @property
    def gone(self) -> bool:
        """Nothing of it is left, neither here nor on disk."""
        return not (self.present or self.serving or self.loading or self.draining or self.task)

    def folders(self) -> Iterator[Path]:
        """Every folder somebody may still read: what serves, drains, or is to be loaded."""
        for folder in (self.folder, self.changing):
            if folder is not None:
                yield folder.folder
        built = [occupant.built for occupant in self.serving.values()]
        for one in (*built, *(one for _, one in self.draining)):
            yield one.served.version.folder

    def holders_of(self, version: int | None, key: int | str) -> list[ServedVersion]:
        """What serves or drains and has this sequence, the newest first."""
        every = [(number, occupant.built) for number, occupant in sorted(self.serving.items())]
        return [
            built.served
            for number, built in reversed([*self.draining, *every])
            if version in (None, number) and _holds(built.scheduler, key)
        ]

    async def drain_sequences(self, until_ns: int) -> None:
        """Let the sequences that live end, and begin none; of versions that have any."""
        built = [occupant.built for occupant in self.serving.values()]
        every = [one.served for one in (*built, *(one for _, one in self.draining))]
        batchers = [one.scheduler for one in every if isinstance(one.scheduler, SequenceBatcher)]
        await asyncio.gather(*(one.drain(until_ns) for one in batchers))

    def _leaving(self) -> set[int]:
        return {number for number, _ in self.draining}

    def healthy(self) -> bool:
        """False when the model is wanted and a failure, or a dead worker, keeps it from answering.

        A model still loading for the first time, or one that serves beside a failed candidate, is
        healthy.
        """
        if self.serving:
            return all(_can_answer(occupant.built) for occupant in self.serving.values())
        return not (self.failed or self.problem)

    def rows(self) -> Iterator[VersionRow]:
        """A row per version known, ascending, after one for a problem of the whole model."""
        if self.problem:
            yield VersionRow(self.name, None, ServingState.FAILED, self.problem)
        numbers = sorted(
            {*self.serving, *self.loading, *self.failed, *self._leaving(), *self.unloaded}
        )
        for number in numbers:
            yield self._row(number)
        if not self.problem and not numbers:
            yield VersionRow(self.name, None, None, "")

    def _row(self, number: int) -> VersionRow:
        occupant, failure = self.serving.get(number), self.failed.get(number)
        if occupant is not None:
            return self._serving_row(number, occupant, failure)
        if number in self.loading:
            return VersionRow(self.name, number, ServingState.LOADING, self.doing.get(number, ""))
        if failure is not None:
            return VersionRow(self.name, number, ServingState.FAILED, failure.reason)
        if number in self._leaving():
            return VersionRow(self.name, number, ServingState.DRAINING, "")
        return VersionRow(self.name, number, ServingState.UNLOADED, "unloaded")

    def _serving_row(
        self, number: int, occupant: LoadedVersion, failure: VersionFailure | None
    ) -> VersionRow:
        built = occupant.built
        alive = built.served.ready
        reason = (
            built.state if failure is None else f"serving what was loaded before: {failure.reason}"
        )
        return VersionRow(
            self.name,
            number,
            ServingState.READY if alive else ServingState.FAILED,
            reason if alive else built.served.not_ready_reason,
            built.served.version.config.backend or built.served.version.config.platform,
            describe(built.devices),
            built.served.load_seconds,
            occupant.since,
        )

    def target_state(self, version: int, starting: bool) -> TargetState:
        """Whether requests may be sent to `version`. `starting`: the server still loads what it
        begins with, so that nothing is known to be missing yet."""
        occupant, failure = self.serving.get(version), self.failed.get(version)
        if occupant is not None:
            ready = occupant.built.served.ready
            return TargetState(ready, not ready, "is ready" if ready else f"has {RESTARTING}")
        if version in self.loading:
            return TargetState(False, True, "is loading")
        if failure is not None:
            return TargetState(False, False, f"failed: {failure.reason}")
        if self.problem:
            return TargetState(False, False, f"cannot be loaded: {self.problem}")
        coming = starting or (self.task is not None and version in self._target())
        return TargetState(False, coming, NOT_LOADED)

    def absence(self, version: int | None) -> ServingError:
        """Why `version` (None: any) does not answer, in Triton's words and with the reason."""
        rows = [row for row in self.rows() if row.state is not None]
        if not rows:
            return UnknownModel(f"Request for unknown model: '{self.name}' is not found")
        if version is None:
            text = f"Request for unknown model: '{self.name}' has no available versions"
            if self.loading:
                return ModelLoading(text, f"version {max(self.loading)} is loading")
            reasons = [_failure_text(row) for row in rows if row.state == ServingState.FAILED]
            return UnknownModel(": ".join([text, "; ".join(reasons)] if reasons else [text]))
        for row in rows:
            if row.version == version:
                text = not_ready_text(self.name, version)
                if row.state == ServingState.LOADING:
                    return NotReady(text, f"version {version} is loading")
                failed = row.state == ServingState.FAILED
                return NotReady(f"{text}: {row.reason}" if failed else text)
        return UnknownModel(
            f"Request for unknown model: '{self.name}' version {version} is not found"
        )


def _holds(scheduler: object, key: int | str) -> bool:
    return isinstance(scheduler, SequenceBatcher | OnDemandVersion) and scheduler.holds(key)


def _can_answer(built: BuiltVersion) -> bool:
    """One that nobody has used since it was unloaded keeps no server from being ready, though its
    last load failed."""
    scheduler = built.scheduler
    cold = isinstance(scheduler, OnDemandVersion) and scheduler.resident is None
    return cold or built.served.ready


def _when(pause: float | None, tries: int) -> str:
    if pause is None:
        return f"given up after {tries} tries; load it again when there is enough"
    at = datetime.now(UTC) + timedelta(seconds=pause)
    return f"try {tries} of {MOST_TRIES}, the next one at {at:%H:%M:%S} UTC"


def _failure_text(row: VersionRow) -> str:
    return row.reason if row.version is None else f"version {row.version} failed: {row.reason}"
