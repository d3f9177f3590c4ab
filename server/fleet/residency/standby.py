"""What a version that is not loaded shows of itself: all that its completed config says."""

import asyncio
from collections.abc import Callable
from typing import cast

from backends.errors import LoadFailed
from backends.registry import runtime_of
from backends.seam import Instance
from repository.model import ModelVersion
from schedulers.counters import Counters
from schedulers.seam import Scheduler
from server.fleet.prepare import read_labels, read_text_side
from server.fleet.residency.terms import BadTerms, ResidencyTerms, read_terms
from server.served_version import ServedVersion
from server.settings.table import Settings
from server.signature import compile_signature


def terms_of(version: ModelVersion, settings: Settings) -> ResidencyTerms:
    """When a version is loaded. Raises LoadFailed naming a parameter that cannot be read."""
    defaults = ResidencyTerms(
        on_demand=settings.load_on_demand, min_residency_s=settings.min_residency_secs
    )
    parameters = {key: str(value.string_value) for key, value in version.config.parameters.items()}
    try:
        return read_terms(parameters, defaults)
    except BadTerms as error:
        raise LoadFailed(f"model '{version.name}' version {version.number}: {error}") from None


async def stand_by(version: ModelVersion, counters: Counters, seconds: float) -> ServedVersion:
    """`version.config` is complete, its instance groups resolved. Its scheduler and instances are
    to be set. Raises LoadFailed for label files, or a tokeniser, that cannot be read."""
    labels = await asyncio.to_thread(read_labels, version)
    language = None
    if runtime_of(version.config.backend).steps:
        language = await asyncio.to_thread(read_text_side, version)
    return ServedVersion(
        version=version,
        signature=compile_signature(version.config, version.number, labels),
        scheduler=cast(Scheduler, None),
        counters=counters,
        instances=cast(tuple[Instance, ...], ()),
        load_seconds=seconds,
        language=language,
    )


class StandbyInstance:
    """Stands where the instances of a loaded version are: `ready` unless loading has failed."""

    device = "none"
    cores = 0

    def __init__(self) -> None:
        self.changed: Callable[[], None] = lambda: None
        self.ready = True
        self.not_ready_reason = ""
