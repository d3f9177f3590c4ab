"""One loaded version, and what may be said of every version known.

Made by `server.fleet`, looked up by `server.dataplane` for each request.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from backends.seam import Instance
from repository.model import ModelVersion
from schedulers.counters import Counters
from schedulers.seam import Scheduler
from server.signature import Signature

if TYPE_CHECKING:
    from schedulers.llm.language import Language  # its tokeniser is an extra


class State(StrEnum):
    """A version's life: LOADING → READY → DRAINING → gone (UNLOADED); FAILED has a reason."""

    LOADING = "LOADING"
    READY = "READY"
    DRAINING = "DRAINING"
    UNLOADED = "UNLOADED"
    FAILED = "FAILED"


@dataclass(slots=True, eq=False)
class Served:
    """One version that answers requests. `version.config` is completed.

    `load_seconds` covers checking, loading and warming. `language`: what its text is made of, for
    a language model; None for any other.
    """

    version: ModelVersion
    signature: Signature
    scheduler: Scheduler
    counters: Counters
    instances: Sequence[Instance]
    load_seconds: float
    language: "Language | None" = None

    @property
    def ready(self) -> bool:
        """Whether at least one instance can execute now."""
        return any(instance.ready for instance in self.instances)


class VersionRow(NamedTuple):
    """A line of the index and of the start-up table.

    `version` is None for a model of which no version is known to the fleet (a folder that cannot
    be read, or one not loaded in explicit mode); `state` None when it was never loaded. `reason`
    is empty unless there is something to say. `backend` and `instances` ("2 × cpu") are empty
    until known; `load_seconds` is 0 until loaded.
    """

    name: str
    version: int | None
    state: State | None
    reason: str
    backend: str = ""
    instances: str = ""
    load_seconds: float = 0.0


class MemoryRow(NamedTuple):
    """`bytes` of a device's memory that `holder` was granted ("digits version 2"); the budget of
    the device where `holder` is empty."""

    device: str
    holder: str
    bytes: int
