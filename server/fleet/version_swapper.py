"""Carry out one change of one model: build beside the old, swap in one turn, drain, close.

Called by `server.fleet.fleet`'s task for that model; everything runs on the loop's thread, and what
blocks runs on the threads of `server.fleet.loading`.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from backends.errors import BackendError
from repository.errors import RepositoryError
from repository.model import ModelFolder, ModelVersion
from server.fleet.built_version import BuiltVersion
from server.fleet.loading import VersionLoader
from server.fleet.managed_model import LoadedVersion, ManagedModel
from server.fleet.memory.shortage import shortage_of
from server.fleet.placement import describe
from server.fleet.plan import BuildDigests, ModelChange, basis_of

_log = logging.getLogger(__name__)


class VersionSwapper:
    """Replaces what serves of a model. `publish(resident)` makes new requests see the result."""

    def __init__(
        self,
        loader: VersionLoader,
        publish: Callable[[ManagedModel], None],
        drain_secs: float,
        shown: Callable[[str], str] = str,
    ) -> None:
        """`shown` makes of a reason what clients may see."""
        self._shown = shown
        self._loader = loader
        self._publish = publish
        self._drain_secs = drain_secs
        self._background: set[asyncio.Task[None]] = set()

    async def carry_out(
        self, resident: ManagedModel, folder: ModelFolder, change: ModelChange
    ) -> None:
        """Bring about `change`; failures become reasons in `resident`, never exceptions.

        When the model is released meanwhile, what was built is closed again.
        """
        resident.loading.update(version.number for version in change.load)
        try:
            made = await self._build_all(resident, change.load)
        finally:
            for version in change.load:
                resident.loading.discard(version.number)
                resident.doing.pop(version.number, None)
        built = {number: one for number, one in made.items() if isinstance(one, BuiltVersion)}
        failed = {number: one for number, one in made.items() if not isinstance(one, BuiltVersion)}
        basis = {version.number: basis_of(folder, version) for version in change.load}
        for number, error in failed.items():
            self._fail(resident, number, basis[number], error)
        if resident.folder is None or (failed and change.atomic):
            resident.dropped.update({number: basis[number] for number in built})
            self._discard(built.values())
            built = {}
        now = time.time()
        new = {number: LoadedVersion(one, basis[number], now) for number, one in built.items()}
        self._swap(resident, new, () if failed else change.unload)
        for version in change.resize:
            await self._resize(resident, folder, version)

    def release(self, resident: ManagedModel, until_ns: int = 0) -> None:
        """No version of the model answers from now on; drain them all (0: as long as usual)."""
        self._swap(resident, {}, tuple(resident.serving), until_ns)

    async def idle(self) -> None:
        """Return when everything replaced so far is drained and closed."""
        while self._background:
            await asyncio.wait(self._background)

    async def _build_all(
        self, resident: ManagedModel, versions: Sequence[ModelVersion]
    ) -> dict[int, BuiltVersion | Exception]:
        for version in versions:
            _log.info("%s %d: LOADING", version.name, version.number)
        tasks = [
            asyncio.create_task(
                self._loader.build(version, partial(_tell, resident, version.number))
            )
            for version in versions
        ]
        try:
            await asyncio.gather(*tasks, return_exceptions=True)
        except asyncio.CancelledError:
            done = [task for task in tasks if task.done() and not task.cancelled()]
            self._discard(task.result() for task in done if task.exception() is None)
            raise
        return {
            version.number: _outcome(task) for version, task in zip(versions, tasks, strict=True)
        }

    def _swap(
        self,
        resident: ManagedModel,
        new: Mapping[int, LoadedVersion],
        leaving: Iterable[int],
        until_ns: int = 0,
    ) -> None:
        """In this turn of the loop: the new answer, the old do not any more and begin to drain."""
        old = [
            (number, resident.serving.pop(number))
            for number in sorted({*leaving, *new})
            if number in resident.serving
        ]
        for number, occupant in new.items():
            resident.serving[number] = occupant
            resident.has_served = True
            resident.failed.pop(number, None)
            resident.tries.pop(number, None)
            resident.unloaded.discard(number)
            _log.info(
                "%s %d: READY in %.2f s, %s",
                resident.name,
                number,
                occupant.built.served.load_seconds,
                describe(occupant.built.devices) or "loads on demand",
            )
        until_ns = until_ns or time.monotonic_ns() + int(self._drain_secs * 1e9)
        for number, occupant in old:
            resident.draining.append((number, occupant.built))
            self._in_background(self._retire(resident, number, occupant.built, until_ns))
        self._publish(resident)

    async def _retire(
        self, resident: ManagedModel, number: int, built: BuiltVersion, until_ns: int
    ) -> None:
        inflight = built.scheduler.inflight()
        _log.info("%s %d: DRAINING, %d requests in flight", resident.name, number, inflight)
        await built.served.released(until_ns)
        await built.scheduler.drain(until_ns)
        await built.close()
        resident.draining.remove((number, built))
        if number not in resident.serving:
            if number in resident.on_disk:
                resident.unloaded.add(number)
            _log.info("%s %d: UNLOADED", resident.name, number)
        self._publish(resident)

    async def _resize(
        self, resident: ManagedModel, folder: ModelFolder, version: ModelVersion
    ) -> None:
        number, basis = version.number, basis_of(folder, version)
        occupant = resident.serving.get(number)
        if occupant is None:
            return
        try:
            await self._loader.resize(occupant.built, version)
        except Exception as error:  # noqa: BLE001 (noted and logged; the model's task goes on)
            self._fail(resident, number, basis, error)
            return
        resident.failed.pop(number, None)
        if resident.serving.get(number) is occupant:
            resident.serving[number] = occupant._replace(basis=basis)
        _log.info("%s %d: resized to %s", resident.name, number, describe(occupant.built.devices))

    def _fail(
        self, resident: ManagedModel, number: int, basis: BuildDigests, error: Exception
    ) -> None:
        """Note the failure in words, and log it once."""
        ours = isinstance(error, BackendError | RepositoryError)
        expected = ours or bool(shortage_of(error))
        kind = "" if ours else f"{type(error).__name__}: "
        reason = f"{kind}{error}" if expected else f"{kind}{error}. This is a bug."
        failure = resident.fail(number, basis, error, self._shown(reason))
        _log.error(
            "%s %d: FAILED: %s",
            resident.name,
            number,
            failure.reason,
            exc_info=None if expected else error,
        )

    def _discard(self, built: Iterable[BuiltVersion]) -> None:
        for one in built:
            self._in_background(one.close())

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)


def _outcome(task: "asyncio.Task[BuiltVersion]") -> BuiltVersion | Exception:
    error = task.exception()
    if error is None:
        return task.result()
    return error if isinstance(error, Exception) else RuntimeError(repr(error))


def _tell(resident: ManagedModel, number: int, doing: str) -> None:
    """Note what a load is doing, for the index; from any thread."""
    _log.info("%s %d: %s", resident.name, number, doing)
    resident.doing[number] = doing
