"""The environments of packages that this server's python models have, as its settings say."""

import asyncio
from functools import partial
from pathlib import Path

from backends.environments.declared import declared_environment
from backends.environments.environments import Leased, PythonEnvironments
from backends.environments.packages import Tell
from backends.environments.sources import PackageSources
from backends.environments.store import EnvironmentStore
from repository.model import ModelVersion
from server.fleet.abandon import work_or_undo
from server.fleet.confine import Confiner
from server.settings.table import Settings


class LoadEnvironments:
    """What loads of models run on. A load has it before it takes its turn among the loads: builds,
    as many at a time, hold up each other and nothing else."""

    def __init__(self, settings: Settings, confiner: Confiner | None) -> None:
        self._confiner = confiner
        self._environments = environments_of(settings, confiner)
        self._turns = asyncio.Semaphore(settings.model_load_thread_count)

    async def lease(self, version: ModelVersion, tell: Tell) -> Leased | None:
        """As `PythonEnvironments.lease`, on a thread; given back where nobody waits for it any
        more. Raises LoadFailed."""
        confiner, environments = self._confiner, self._environments
        if confiner is None or environments is None or version.config.backend != "python":
            return None
        if await asyncio.to_thread(declared_environment, version) is None:
            return None
        async with self._turns:
            own = confiner.is_operators(version)
            return await work_or_undo(partial(environments.lease, version, own, tell), _give_back)


def _give_back(leased: Leased | None) -> None:
    if leased is not None:
        leased.close()


def environments_of(settings: Settings, confiner: Confiner | None) -> PythonEnvironments | None:
    if confiner is None:
        return None
    store = EnvironmentStore(
        settings.state_dir.absolute() / "environments", settings.environment_cache_limit
    )
    store.sweep()
    sources = PackageSources(
        settings.environment_index,
        settings.environment_wheel_dir,
        settings.environment_builds == "on",
        Path.home(),
    )
    secs = settings.model_load_timeout_secs
    return PythonEnvironments(store, confiner.build_sandbox, secs, sources)
