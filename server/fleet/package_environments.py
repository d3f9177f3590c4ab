"""The environments of packages that this server's python models have, as its settings say."""

from pathlib import Path

from backends.environments.environments import PythonEnvironments
from backends.environments.sources import PackageSources
from backends.environments.store import EnvironmentStore
from server.fleet.confine import Confiner
from server.settings.table import Settings


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
