"""Loading a version on a device: in this process, or in a worker process per instance."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for

from backends.errors import LoadFailed
from backends.process.instance import HostedInstance
from backends.registry import backend_of, runtime_for
from backends.seam import Device, LoadedInstances
from backends.sequences.loading import load as load_instances
from repository.model import ModelVersion

Start = Callable[[ModelVersion, Device, str], HostedInstance]
"""Start one instance in a process of its own, by its name; blocks."""


def load(
    version: ModelVersion, device: Device, names: Sequence[str], start: Start = HostedInstance
) -> LoadedInstances:
    """An instance of each name, of a version whose config names its backend, ready to execute;
    `start` makes each of those that are hosted.

    Blocks; workers load in parallel. The config returned is the one the instances serve: a
    python model completes its own. Raises `LoadFailed`; nothing is left behind then.
    """
    if not runtime_for(version.config).hosted:
        return load_instances(backend_of(version.config.backend), version, device, len(names))
    with ThreadPoolExecutor(len(names), "load-worker") as pool:
        attempts = [pool.submit(start, version, device, name) for name in names]
        wait_for(attempts)
    try:
        return _agreed(version, [attempt.result() for attempt in attempts])
    except BaseException:
        _close_loaded(attempts)
        raise


def _agreed(version: ModelVersion, instances: list[HostedInstance]) -> LoadedInstances:
    config = instances[0].config
    if any(instance.config != config for instance in instances):
        raise LoadFailed(
            f"model '{version.name}' version {version.number}: auto_complete_config completes the "
            "config differently in each instance; it must not depend on where it runs"
        )
    return LoadedInstances(instances, config)


def _close_loaded(attempts: list[Future[HostedInstance]]) -> None:
    for attempt in attempts:
        if attempt.exception() is None:
            attempt.result().close()
