"""What the control process asks a gateway, each query with what answers it. Pure."""

from typing import Any, ClassVar

import msgspec
from msgspec import Struct


class GrantedMemory(Struct, frozen=True):
    """Memory of a device that one holder was granted; it can give back what is above the least."""

    holder: str
    bytes: int
    least_bytes: int


class DeviceMemory(Struct, frozen=True):
    """A device's memory. `budget_bytes` null: no bound is set. `grants`: the largest 50."""

    device: str
    budget_bytes: int | None
    granted_bytes: int
    holders: int
    grants: tuple[GrantedMemory, ...]


class LimitedResource(Struct, frozen=True):
    """A resource of the rate limiter on `device` (a number, or "global"): its copies, those that
    executions hold, and how many instances wait for some."""

    name: str
    device: str
    count: int
    in_use: int
    waiting: int


class RunningSequences(Struct, frozen=True):
    """Of a sequence model: sequences that are `live`, those of them that wait in the `backlog`,
    `slots` of all instances, of which some are `in_use`, the age of the oldest sequence, and what
    the states take. Sequences that were `started`, that `expired` because they were idle, that were
    `lost` with their instance, and `conflicts` of ids, are since the version was loaded."""

    live: int
    backlog: int
    slots: int
    in_use: int
    oldest_s: float
    state_bytes: int
    started: int
    expired: int
    lost: int
    conflicts: int


class RunningLoadPhase(Struct, frozen=True):
    """A part of a load. `bytes`: that it read, or took, 0 where there are none to tell."""

    name: str
    seconds: float
    bytes: int


class RunningVersion(Struct, frozen=True):
    """A version that is loaded. `deaths` of its workers since it was; `resident_bytes` of its
    workers, 0 where it runs inside the gateway; `pending` requests wait, `inflight` have not been
    answered; `sandbox` is what confines its workers, "" without any;
    `succeeded` and `failed` requests since it was loaded; `sampling`: a language model's defaults,
    by name, where a request does not say; `sequences`: null where it has none; `load_phases`: of
    a language model."""

    model: str
    version: int
    backend: str
    devices: tuple[str, ...]
    instances: int
    ready: int
    deaths: int
    pids: tuple[int, ...]
    sandbox: str
    resident_bytes: int
    pending: int
    inflight: int
    succeeded: int
    failed: int
    load_s: float
    sampling: dict[str, float]
    sequences: RunningSequences | None = None
    load_phases: tuple[RunningLoadPhase, ...] = ()


class GatewayInstances(Struct, frozen=True):
    """A gateway: its own process, the memory of each device, and all that is loaded. `resources`:
    empty where no executions are limited."""

    pid: int
    resident_bytes: int
    machine_bytes: int
    accounts: tuple[DeviceMemory, ...]
    items: tuple[RunningVersion, ...]
    resources: tuple[LimitedResource, ...] = ()


class RunningQuery(Struct, frozen=True, tag="running"):
    """`model`: of its versions alone, "" for all."""

    model: str = ""
    Answer: ClassVar = GatewayInstances


class LoadedTensor(Struct, frozen=True):
    """An input or output. `shape`: the batch dimension included, -1 is any size."""

    name: str
    datatype: str
    shape: tuple[int, ...]


class EnsembleStepFacts(Struct, frozen=True):
    """A step of an ensemble, as `control.series.step_views.EnsembleStepView` shows it."""

    number: int
    model: str
    version: str
    inputs: dict[str, str]
    outputs: dict[str, str]
    condition: str
    mapped: str
    decoupled: bool


class LoadedVersionFacts(Struct, frozen=True):
    """A version as this server has it loaded. `config`: with everything that config.pbtxt leaves
    out, in its format; its first 256 KiB. `folder`: of the model. `language`: of a language model,
    what it serves with, by name. `steps`: of an ensemble."""

    model: str
    version: int
    inputs: tuple[LoadedTensor, ...]
    outputs: tuple[LoadedTensor, ...]
    config: str
    folder: str = ""
    language: dict[str, str] = {}
    steps: tuple[EnsembleStepFacts, ...] = ()


class LoadedVersions(Struct, frozen=True):
    """The versions of a model that are loaded on this server, the highest first."""

    items: tuple[LoadedVersionFacts, ...]


class LoadedQuery(Struct, frozen=True, tag="loaded"):
    model: str
    Answer: ClassVar = LoadedVersions


class VersionCrashes(Struct, frozen=True):
    """A version of which workers died: `deaths` of them, one within ten minutes of the other, from
    `since` to `last` (seconds since the epoch), which ended as `ending` says. `ready`: of its
    instances."""

    model: str
    version: int
    instances: int
    ready: int
    deaths: int
    since: float
    last: float
    ending: str


class CrashReport(Struct, frozen=True):
    items: tuple[VersionCrashes, ...]


class CrashQuery(Struct, frozen=True, tag="crashes"):
    Answer: ClassVar = CrashReport


class SampledModelState(Struct, frozen=True):
    """A model whose requests are kept, or were. `until` in seconds since the epoch; `kept` of
    those `taken` are still there."""

    model: str
    percent: float
    max_bytes: int
    values: bool
    by: str
    until: float
    active: bool
    kept: int
    taken: int
    size_bytes: int


class SamplingState(Struct, frozen=True):
    """`problem`: why what was asked for cannot be, "" if it is done."""

    models: tuple[SampledModelState, ...]
    problem: str = ""


class SamplingQuery(Struct, frozen=True, tag="sampling"):
    Answer: ClassVar = SamplingState


class StartSampling(Struct, frozen=True, tag="start_sampling"):
    """`by`: who asks for it. Longer and larger than the gateway allows is made what it allows."""

    model: str
    seconds: float
    percent: float
    max_bytes: int
    values: bool
    by: str
    Answer: ClassVar = SamplingState


class StopSampling(Struct, frozen=True, tag="stop_sampling"):
    model: str
    Answer: ClassVar = SamplingState


class SampledRequest(Struct, frozen=True):
    """One request that was kept. `at` in seconds since the epoch. `number` grows from one to the
    next; the rest as `control.api.resources.samples.SampleView` shows it."""

    number: int
    id: str
    at: float
    model: str
    version: int
    arm: str
    principal: str
    state: str
    status: int
    error: str
    took_s: float
    rows: int
    streamed: bool
    inputs: list[dict[str, Any]]
    outputs: list[dict[str, Any]]


class SampledRequests(Struct, frozen=True):
    """The newest first; each a SampledRequest as it was packed when it was kept."""

    items: tuple[msgspec.Raw, ...]


class SamplesQuery(Struct, frozen=True, tag="samples"):
    """Of all models where `model` is ""; an `id` finds all that begin with it."""

    model: str
    id: str
    limit: int
    Answer: ClassVar = SampledRequests


class LogLine(Struct, frozen=True):
    """A line of a process's log. `number` grows from one to the next, over restarts as well; `at`
    in seconds since the epoch."""

    number: int
    at: float
    level: str
    text: str


class LogLines(Struct, frozen=True):
    """The oldest first."""

    items: tuple[LogLine, ...]


class LogQuery(Struct, frozen=True, tag="log"):
    """The newest `limit` lines above the number `after`."""

    after: int
    limit: int
    Answer: ClassVar = LogLines


class AnsweredRequest(Struct, frozen=True):
    """A request that has ended; as `control.api.resources.requests.RequestView` shows it. `at` in
    seconds since the epoch; `instance` null and `compute_s` 0 where none executed it."""

    id: str
    client_id: str
    at: float
    model: str
    version: int
    arm: str
    instance: int | None
    queue_s: float
    compute_s: float
    outcome: str
    error: str


class AnsweredRequests(Struct, frozen=True):
    """`found` fit the query, of which `items` are the first; `kept` are there in all."""

    items: tuple[AnsweredRequest, ...]
    found: int
    kept: int


class RequestsQuery(Struct, frozen=True, tag="requests"):
    """Of the requests that are kept, those that fit all that is given; the newest first, or the
    `slowest`. `id`: ours, or what the client gave. `since` and `until` in seconds since the epoch.
    `least_s`: from arrival to the answer."""

    id: str = ""
    model: str = ""
    version: int = 0
    arm: str = ""
    outcome: str = ""
    least_s: float = 0.0
    since: float | None = None
    until: float | None = None
    slowest: bool = False
    limit: int = 100
    Answer: ClassVar = AnsweredRequests


class ResidentVersion(Struct, frozen=True):
    """A version that loads on demand, as the control API shows it, too. `state`: loaded, loading or
    unloaded; `bytes` of memory it is granted; `idle_s` since its last request, null before the
    first; requests that are `waiting` for its load; `evictions` to make room for another since the
    server began; `held_by`: why it would not be evicted now, "" if it would. `warm_hours`,
    `keep_warm_s`, `min_residency_s` and `idle_unload_s` as its config and the settings say."""

    model: str
    version: int
    state: str
    pinned: bool
    bytes: int
    idle_s: float | None
    waiting: int
    evictions: int
    held_by: str
    warm_hours: str
    keep_warm_s: float
    min_residency_s: float
    idle_unload_s: float


class ResidencyAnswer(Struct, frozen=True):
    """`problem`: why what was asked for was not done, "" if it was. `evicted`: versions that were,
    which may be some of the model's where others are the `problem`."""

    items: tuple[ResidentVersion, ...]
    problem: str = ""
    evicted: tuple[int, ...] = ()


class ResidencyQuery(Struct, frozen=True, tag="residency"):
    """Of all models where `model` is "". `action`, of one model: pin, unpin, evict or load."""

    model: str = ""
    action: str = ""
    Answer: ClassVar = ResidencyAnswer


Query = (
    RunningQuery
    | LoadedQuery
    | CrashQuery
    | SamplingQuery
    | StartSampling
    | StopSampling
    | SamplesQuery
    | LogQuery
    | RequestsQuery
    | ResidencyQuery
)
QueryAnswer = (
    GatewayInstances
    | LoadedVersions
    | CrashReport
    | SamplingState
    | SampledRequests
    | LogLines
    | AnsweredRequests
    | ResidencyAnswer
)


def pack_sample(sample: SampledRequest) -> bytes:
    return msgspec.msgpack.encode(sample)


def samples_in(answered: SampledRequests) -> list[SampledRequest]:
    """Raises ValueError."""
    return [msgspec.msgpack.decode(one, type=SampledRequest) for one in answered.items]
