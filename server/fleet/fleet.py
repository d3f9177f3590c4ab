"""Every model loaded or meant to be: get the one that answers, change it without a gap.

`server.dataplane` asks `get` for each request; `server.app` hands over snapshots to `follow`.
Each model is changed by one task: `plan` decides what to change, `version_swapper` does it.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from repository.errors import BadModel, RepositoryError
from repository.model import ModelConfig, Snapshot
from repository.policy import default_version
from server.errors import Internal, InvalidRequest, ModelLoadFailed, NotReady
from server.fleet.abandon import work_or_undo
from server.fleet.client_paths import client_paths
from server.fleet.dependencies import awaited_by, callees_of
from server.fleet.load_errors import NOWHERE, check_name, load_failed_text, poll_failed, unknown
from server.fleet.loading import VersionLoader
from server.fleet.managed_model import ManagedModel
from server.fleet.model_source import ModelSource, configs_in, longest_load_s
from server.fleet.override_files import OverrideFiles
from server.fleet.removed_models import RemovedModels
from server.fleet.retries import LoadRetries
from server.fleet.version_swapper import VersionSwapper
from server.fleet.wanted_names import WantedNames
from server.overrides import Override
from server.routing.effective import NOT_LOADED, TargetState
from server.served_version import MemoryRow, ServedVersion, ServingState, VersionRow
from server.settings.table import Settings

_log = logging.getLogger(__name__)


class Fleet:
    """The models of one server (implements `dataplane.Models`); all on the loop's thread."""

    def __init__(
        self,
        loader: VersionLoader,
        repository: ModelSource,
        settings: Settings,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """`changed`: called in the turn in which other versions serve, or one was not loaded."""
        self.memory, self.residency = loader.memory, loader.residency
        self.limiter, self._code_of = loader.limiter, loader.code_of
        self._shown = client_paths(settings)
        self._changed = changed
        drain_s, self._settings = settings.exit_timeout_secs, settings
        self._swapper = VersionSwapper(loader, self._publish, drain_s, self._shown)
        self._repository = repository
        self._explicit = settings.model_control_mode == "explicit"
        self._wanted = WantedNames(settings.load_model)
        self._table: dict[str, dict[int | None, ServedVersion]] = {}
        self._residents: dict[str, ManagedModel] = {}
        self._delivered = self._strays = frozenset[str]()
        self._retries = LoadRetries(self._change)
        self._removed = RemovedModels()
        self._started = self._closing = False
        self._files = OverrideFiles(
            settings.state_dir, settings.model_repository, settings.allow_code_in_load_requests
        )
        self._turns = asyncio.Lock()  # loads look at the files one after another

    # for the front ends

    def get(self, name: str, version: int | None) -> ServedVersion:
        """The version asked for, or the highest that serves. Raises UnknownModel, NotReady."""
        versions = self._table.get(name)
        if versions is not None:
            served = versions.get(version)
            if served is not None:
                return served
        resident = self._residents.get(name)
        if resident is None:
            raise unknown(name, name in self._removed)
        raise resident.absence(version)

    def holders_of(self, name: str, version: int | None, key: int | str) -> list[ServedVersion]:
        resident = self._residents.get(name)
        return [] if resident is None else resident.holders_of(version, key)

    def served(self) -> Sequence[ServedVersion]:
        residents = [one for _, one in sorted(self._residents.items())]
        return [one.serving[n].built.served for one in residents for n in sorted(one.serving)]

    def rows(self) -> Sequence[VersionRow]:
        return [row for _, resident in sorted(self._residents.items()) for row in resident.rows()]

    def memory_rows(self) -> Sequence[MemoryRow]:
        return self.memory.rows()

    def target_state(self, name: str, version: int) -> TargetState:
        """Whether requests may be sent to a version; 0: to the model, without naming one."""
        if not version and (versions := self._table.get(name)) is not None:
            version = versions[None].version.number
        resident = self._residents.get(name)
        if resident is None:
            return TargetState(False, not self._started, NOT_LOADED)
        return resident.target_state(version, not self._started)

    def ready(self) -> bool:
        """After the initial load; when strict, only while every wanted model can answer."""
        if not self._started or self._closing:
            return False
        if not self._settings.strict_readiness:
            return True
        names = self._residents.keys() - self._strays
        return all(self._residents[name].healthy() for name in names)

    async def load(self, name: str, override: Override | None = None) -> None:
        """Load, or reload what changed, and wait for it; nothing happens if nothing changed.

        An `override` stands in for the config, or for all files, of the model until the next load
        of it. When a reload fails, what served before keeps serving.

        Raises NotReady unless the control mode is explicit, InvalidRequest for a bad name,
        Internal when there is no such model or the override cannot be followed, ModelLoadFailed
        with the reason, or when the load took too long; it goes on then.
        """
        self._require_explicit()
        check_name(name)
        limit_s = longest_load_s(self._settings)
        try:
            async with asyncio.timeout(limit_s):
                resident = await self._begin_load(name, override)
                if resident.task is not None:
                    await asyncio.wait([resident.task])
        except TimeoutError:
            raise ModelLoadFailed(
                f"load of '{name}' is not finished after {limit_s:g} s and goes on; the repository "
                "index shows how it ends (see --model-load-timeout-secs, --check-timeout-secs)"
            ) from None
        except (RepositoryError, OSError) as error:
            raise Internal(f"{poll_failed(name)}: {self._shown(str(error))}") from error
        if resident.problem:
            raise Internal(f"{poll_failed(name)}: {resident.problem}")
        if resident.failed:
            raise ModelLoadFailed(load_failed_text(name, resident.failed))

    async def _begin_load(self, name: str, override: Override | None) -> ManagedModel:
        """Look at the files, in the order of asking, and aim the model at what is there."""
        async with self._turns:
            if override is not None:
                work = partial(self._files.read, name, override, self._code_of())
                folder = await work_or_undo(work, self._files.drop)
                self._files.keep(folder)
                resident = self._by_name(name)
                resident.aim(folder, "")
                self._change(resident)
                self._tidy()
                return resident
            snapshot = await asyncio.to_thread(self._repository.snapshot)
            if name not in snapshot.models and name not in snapshot.problems:
                raise BadModel(NOWHERE)
            resident = self._by_name(name)
            for needed in self._wanted.ask([name], configs_in(snapshot)):
                self._aim(self._resident(needed), snapshot)
            self._aim(resident, snapshot)
            return resident

    def _by_name(self, name: str) -> ManagedModel:
        """The model, wanted by name from now on, whatever failed before."""
        self._wanted.ask([name], {})
        resident = self._resident(name)
        resident.forget_failures()
        return resident

    async def unload(self, name: str, dependents: bool) -> None:
        """Let go of every version of `name` and return; requests inside still finish.

        Unknown names are not an error. With `dependents`, the models of an ensemble's steps go as
        well that nobody loaded by name and no other ensemble needs. The ensembles that need
        `name` answer no more until it is loaded again.
        Raises NotReady unless the control mode is explicit, InvalidRequest when an alias or a
        route refers to it, or when it came by git.
        """
        self._require_explicit()
        if references := self._wanted_elsewhere(name):
            raise InvalidRequest(f"failed to unload '{name}', {references}")
        leaving = self._wanted.forget(name, dependents, self._configs(), self._delivered)
        for one in sorted(leaving):
            resident = self._residents.get(one)
            if resident is not None and (one == name or not self._wanted_elsewhere(one)):
                resident.release()
                self._change(resident)

    def _configs(self) -> dict[str, ModelConfig]:
        """Of every model that is wanted."""
        folders = ((name, one.folder) for name, one in self._residents.items())
        return {name: folder.config for name, folder in folders if folder is not None}

    def _wanted_elsewhere(self, name: str) -> str:
        """Who else wants it loaded, as the reason it may not be unloaded; "" for nobody."""
        if name in self._delivered:
            return "it was pushed with git; remove it from its repository instead"
        resident = self._residents.get(name)
        pins = resident.folder.pins if resident is not None and resident.folder else ()
        by = ", ".join(f"{pin.by} (version {pin.version.number})" for pin in pins)
        return f"referred to by {by}; move or delete that first" if by else ""

    def _require_explicit(self) -> None:
        if not self._explicit:
            raise NotReady(
                "explicit model load / unload is not allowed if polling is enabled"
            )  # Triton says the same in mode none

    # told by the app

    async def start(self, snapshot: Snapshot) -> list[VersionRow]:
        """Load what is wanted at start; the rows of what failed.

        `follow` may be called meanwhile: a slow model does not delay another one's changes.
        """
        if self._wanted.asked == {"*"}:
            self._wanted = WantedNames({*snapshot.models, *snapshot.problems})
        self._wanted.ask(self._wanted.asked, configs_in(snapshot))
        self._delivered, self._strays = snapshot.delivered, snapshot.strays
        await asyncio.to_thread(self._files.sweep)
        self._aim_all(snapshot)
        await self.settle()
        self._started = True
        failed = (row for row in self.rows() if row.state == ServingState.FAILED)
        return [row for row in failed if row.name not in self._strays]

    def follow(self, snapshot: Snapshot) -> None:
        """Want what `snapshot` shows; in explicit mode only know of it, until a load says so."""
        self._delivered, self._strays = snapshot.delivered, snapshot.strays
        if not self._explicit:
            self._aim_all(snapshot)
            return
        for name in sorted({*snapshot.models, *snapshot.problems, *self._residents}):
            self._follow_explicitly(self._resident(name), snapshot)

    def _follow_explicitly(self, resident: ManagedModel, snapshot: Snapshot) -> None:
        """Of a model that came by git, all; of another one only what is referred to."""
        name = resident.name
        folder, problem = snapshot.models.get(name), snapshot.problems.get(name, "")
        if name in snapshot.delivered:
            self._aim(resident, snapshot)
            return
        resident.see(folder, problem)
        if problem and resident.serving:
            return
        pins = folder.pins if folder is not None else ()
        if name in self._wanted:
            resident.pin(pins)
        elif folder is not None and pins:
            resident.aim(replace(folder, only_pinned=True), "")
        else:
            resident.release()
        self._change(resident)

    def _aim_all(self, snapshot: Snapshot) -> None:
        names = {*snapshot.models, *snapshot.problems, *self._wanted.asked, *self._residents}
        for name in sorted(names):
            self._aim(self._resident(name), snapshot)

    @property
    def settled(self) -> bool:
        """Whether no model is being changed, after the initial load."""
        return self._started and not any(one.task for one in self._residents.values())

    def folders(self) -> set[Path]:
        """Every model folder whose files somebody may still read."""
        return {folder for one in self._residents.values() for folder in one.folders()}

    async def settle(self) -> None:
        """Return when no model is being changed."""
        while tasks := self._tasks():
            await asyncio.wait(tasks)

    async def drain_sequences(self, until_ns: int) -> None:
        """Begin none any more; return when none lives, or `time.monotonic_ns` is `until_ns`."""
        every = [one.drain_sequences(until_ns) for one in self._residents.values()]
        await asyncio.gather(*every)

    async def close(self, until_ns: int) -> None:
        """Drain every version until `time.monotonic_ns` is `until_ns`, then close it."""
        self._closing = True
        self._retries.close()
        tasks = self._tasks()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for resident in list(self._residents.values()):
            self._swapper.release(resident, until_ns)
        await self._swapper.idle()
        await self._files.close()

    def unfinished(self) -> list[str]:
        """The versions that load, serve or drain, in words; from any thread."""
        return [
            f"model '{row.name}' version {row.version} is {row.state}"
            for row in self.rows()
            if row.state in (ServingState.LOADING, ServingState.READY, ServingState.DRAINING)
        ]

    def _tasks(self) -> list["asyncio.Task[None]"]:
        return [one.task for one in self._residents.values() if one.task is not None]

    # one model

    def _resident(self, name: str) -> ManagedModel:
        return self._residents.setdefault(name, ManagedModel(name))

    def _aim(self, resident: ManagedModel, snapshot: Snapshot) -> None:
        name = resident.name
        folder, problem = snapshot.models.get(name), snapshot.problems.get(name, "")
        if self._explicit and name not in self._wanted and name not in snapshot.delivered:
            resident.see(folder, problem)
        else:
            if self._explicit and folder is None and not problem:
                problem = NOWHERE
            shown = self._shown(problem)
            if problem and shown != resident.problem:
                _log.error("%s: %s", name, problem)
            resident.aim(folder, shown)
        self._change(resident)

    def _change(self, resident: ManagedModel) -> None:
        """See to it that the model is being changed, if it has to be.

        What is not wanted any more leaves at once, even while a load of it is running.
        """
        if resident.folder is None and resident.serving:
            self._swapper.release(resident)
        elif resident.serving:
            self._publish(resident)  # who answers by default may have changed
        if resident.task is None and not self._closing and resident.next_change() is not None:
            resident.task = asyncio.create_task(self._settle(resident))
        self._forget_if_gone(resident)

    async def _settle(self, resident: ManagedModel) -> None:
        """The one task that changes this model, until there is nothing to change."""
        try:
            while resident.folder is not None and (change := resident.next_change()) is not None:
                if unsettled := self._unsettled_callees(resident):
                    with resident.waiting(change):
                        await asyncio.wait(unsettled)
                    continue
                resident.changing = resident.folder
                await self._swapper.carry_out(resident, resident.changing, change)
        finally:
            resident.task = resident.changing = None
            self._retries.plan(resident)
            self._forget_if_gone(resident)
            self._tidy()
            self._changed()

    def _unsettled_callees(self, resident: ManagedModel) -> list["asyncio.Task[None]"]:
        """What an ensemble waits for: its steps' models that are being changed."""
        found = map(self._residents.get, awaited_by(resident.name, self._configs()))
        return [one.task for one in found if one is not None and one.task is not None]

    def _retry_dependents(self, resident: ManagedModel) -> None:
        """Load the ensembles that failed for want of this model."""
        if resident.serving:
            for one in list(self._residents.values()):
                if one.failed and one.folder and resident.name in callees_of(one.folder.config):
                    one.forget_failures()
                    self._change(one)

    def _publish(self, resident: ManagedModel) -> None:
        """Let new requests see what serves now, and nothing else."""
        self._forget_if_gone(resident)
        self._tidy()
        self._tabulate(resident)
        self._retry_dependents(resident)
        self._changed()

    def _tabulate(self, resident: ManagedModel) -> None:
        default = default_version(resident.folder, resident.serving)
        if default is None:
            self._table.pop(resident.name, None)
            return
        versions: dict[int | None, ServedVersion] = {
            number: occupant.built.served for number, occupant in resident.serving.items()
        }
        versions[None] = versions[default]
        self._table[resident.name] = versions

    def _tidy(self) -> None:
        """Let the files of overrides go that no model uses any more."""
        if self._files.any_kept:
            used = {path for one in self._residents.values() for path in one.folders()}
            self._files.keep_only(used)

    def _forget_if_gone(self, resident: ManagedModel) -> None:
        if not resident.gone:
            return
        self._residents.pop(resident.name, None)
        if resident.has_served:
            self._removed.add(resident.name)
