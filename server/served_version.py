"""One loaded version, and what may be said of every version known.

Made by `server.fleet`, looked up by `server.dataplane` for each request.
"""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol

from backends.llm.load_phases import LoadPhase
from backends.seam import Instance
from repository.model import ModelVersion
from schedulers.counters import BucketCounts, Counters
from schedulers.policy.resource_limits import ResourceLimiter
from schedulers.seam import Scheduler
from server.overrides import Override
from server.signature import Signature

if TYPE_CHECKING:
    from schedulers.llm.gateway.language import Language  # its tokeniser is an extra


RESTARTING = "no live instance: its worker died and is being restarted"

HUNG = "no live instance: an execution hangs inside the server, where it cannot be ended"
STANDBY = "unloaded, loads on demand"
LOADING_ON_DEMAND = "unloaded, is loading on demand"
"""Of a version that counts as ready, because its next request loads it."""


class ServingState(StrEnum):
    """A version's life: LOADING → READY → DRAINING → gone (UNLOADED); FAILED has a reason."""

    LOADING = "LOADING"
    READY = "READY"
    DRAINING = "DRAINING"
    UNLOADED = "UNLOADED"
    FAILED = "FAILED"


@dataclass(slots=True, eq=False)
class ServedVersion:
    """One version that answers requests. `version.config` is completed.

    `load_seconds` covers checking, loading and warming. `load_phases`: what a language model's
    process took of that, as it was first started. `language`: what its text is made of, for
    a language model; None for any other. `holds`: requests to other models that will yet call it.
    `steps`: the models that an ensemble calls, and their versions as text ("": any).
    """

    version: ModelVersion
    signature: Signature
    scheduler: Scheduler
    counters: Counters
    instances: Sequence[Instance]
    load_seconds: float
    language: "Language | None" = None
    load_phases: tuple[LoadPhase, ...] = ()
    holds: int = 0
    unheld: asyncio.Event | None = None
    steps: tuple[tuple[str, str], ...] = field(init=False)

    def __post_init__(self) -> None:
        self.steps = tuple(
            (step.model_name, "" if step.model_version < 0 else str(step.model_version))
            for step in self.version.config.ensemble_scheduling.step
        )

    def keep(self) -> None:
        """Let it take requests until `release`, also when another has taken its place."""
        self.holds += 1

    def release(self) -> None:
        self.holds -= 1
        if not self.holds and self.unheld is not None:
            self.unheld.set()

    async def released(self, until_ns: int) -> None:
        """Return when nobody keeps it any more, or `time.monotonic_ns` passes `until_ns`. Call it
        when no new request finds it."""
        if not self.holds:
            return
        self.unheld = asyncio.Event()
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, (until_ns - time.monotonic_ns()) / 1e9)):
                await self.unheld.wait()

    async def loaded(self) -> bool:
        """Return when it is loaded, where it loads on demand; whether it had to be.

        Raises NotReady, as a request that waits for the load is refused."""
        wait = getattr(self.scheduler, "loaded", None)
        if wait is None:
            return False
        await wait()
        return True

    @property
    def ready(self) -> bool:
        """Whether at least one instance can execute now."""
        for instance in self.instances:  # noqa: SIM110 - half the time of `any`, for each request
            if instance.ready:
                return True
        return False

    @property
    def not_ready_reason(self) -> str:
        """Why no instance can execute now, to follow "has"."""
        for instance in self.instances:
            if reason := getattr(instance, "not_ready_reason", ""):
                return str(reason)
        return HUNG if self.scheduler.hung() else RESTARTING


class VersionRow(NamedTuple):
    """A line of the index and of the start-up table.

    `version` is None for a model of which no version is known to the fleet (a folder that cannot
    be read, or one not loaded in explicit mode); `state` None when it was never loaded. `reason`
    is empty unless there is something to say. `backend` and `instances` ("2 × cpu") are empty
    until known; `load_seconds` and `loaded_at`, seconds since the epoch, are 0 until loaded.
    """

    name: str
    version: int | None
    state: ServingState | None
    reason: str
    backend: str = ""
    instances: str = ""
    load_seconds: float = 0.0
    loaded_at: float = 0.0


class MemoryRow(NamedTuple):
    """`bytes` of a device's memory that `holder` was granted ("digits version 2"); the budget of
    the device where `holder` is empty."""

    device: str
    holder: str
    bytes: int


class ResidencyRow(NamedTuple):
    """A version that is loaded on demand. `idle_s`: since its last request, None before its
    first. `bytes`: granted now. `hold`: why it would not be evicted now, "" if it would."""

    name: str
    version: int
    resident: bool
    loading: bool
    pinned: bool
    bytes: int
    idle_s: float | None
    waiting: int
    evictions: int
    hold: str


class ResidencyState(Protocol):
    """What is loaded on demand now. `cold_starts`: how long those loads took; `evictions`: of each
    version, by model and number."""

    cold_starts: BucketCounts
    evictions: dict[tuple[str, int], int]

    def rows(self) -> Sequence[ResidencyRow]:
        """Every version that is loaded on demand, by name and number."""

    def pin(self, model: str, pinned: bool) -> None:
        """Load it, and never evict it; or no longer. Kept across restarts. Raises OSError."""


class Models(Protocol):
    """What the data plane needs of the fleet."""

    @property
    def limiter(self) -> ResourceLimiter | None:
        """The rate limiter; None where executions are not limited."""

    @property
    def residency(self) -> ResidencyState:
        """Of the versions that are loaded on demand."""

    def get(self, name: str, version: int | None) -> ServedVersion:
        """The version asked for, or the highest ready one. Raises UnknownModel, NotReady."""

    def holders_of(self, name: str, version: int | None, key: int | str) -> Sequence[ServedVersion]:
        """The versions of a model (None: any) on which a sequence lives, those that drain included;
        the newest first."""

    def served(self) -> Sequence[ServedVersion]:
        """Every version that answers requests now."""

    def rows(self) -> Sequence[VersionRow]:
        """Every version known, by name and number."""

    def memory_rows(self) -> Sequence[MemoryRow]:
        """Budgets of memory, and what was granted of them."""

    def ready(self) -> bool:
        """Whether the server as a whole is ready (strict readiness included)."""

    async def load(self, name: str, override: Override | None = None) -> None:
        """Load or reload by explicit request, `override` in place of what the repository has.

        Raises NotReady, InvalidRequest, ModelLoadFailed, Internal.
        """

    async def unload(self, name: str, dependents: bool) -> None:
        """Unload by explicit request; an unknown name is not an error. Raises NotReady."""


def not_ready_text(name: str, version: int) -> str:
    return f"Request for unknown model: '{name}' version {version} is not at ready state"
