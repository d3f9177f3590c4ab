"""What runs on this server now, the memory it was granted and whose workers died, as its gateway
tells.
"""

from datetime import UTC, datetime
from pathlib import Path

import msgspec
from anyio import to_thread
from msgspec import to_builtins

from control.access.scopes import Action
from control.api.call import Access, AuthorizedCall, EndpointResult, Operation, Param
from control.clock import Moment
from control.deployments.loaded_files import FileDigests, written_config
from control.errors import NotFound
from control.gateways.queries import (
    CrashQuery,
    CrashReport,
    LoadedQuery,
    RunningQuery,
    VersionCrashes,
)


class MemoryGrantView(msgspec.Struct, frozen=True):
    """Memory of a device that one holder was granted; it can give back what is above the least."""

    holder: str
    bytes: int
    least_bytes: int


class DeviceMemoryView(msgspec.Struct, frozen=True):
    """A device's memory. `budget_bytes` null: no bound is set. `grants`: the largest 50."""

    device: str
    budget_bytes: int | None
    granted_bytes: int
    holders: int
    grants: list[MemoryGrantView]


class LimitedResourceView(msgspec.Struct, frozen=True):
    """A resource of the rate limiter on `device` (a number, or "global"): its copies, those that
    executions hold, and how many instances wait for some."""

    name: str
    device: str
    count: int
    in_use: int
    waiting: int


class RunningSequencesView(msgspec.Struct, frozen=True):
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


class LoadPhaseView(msgspec.Struct, frozen=True):
    """A part of a load. `bytes`: that it read, or took, 0 where there are none to tell."""

    name: str
    seconds: float
    bytes: int


class RunningVersionView(msgspec.Struct, frozen=True):
    """A version that is loaded. `deaths` of its workers since it was; `resident_bytes` of its
    workers, 0 where it runs inside the gateway; `pending` requests wait, `inflight` have not been
    answered; `sandbox` is what confines its workers, "" without any;
    `succeeded` and `failed` requests since it was loaded; `sampling`: a language model's defaults,
    by name, where a request does not say; `sequences`: null where it has none; `load_phases`: of
    a language model, in their order."""

    model: str
    version: int
    backend: str
    devices: list[str]
    instances: int
    ready: int
    deaths: int
    pids: list[int]
    sandbox: str
    resident_bytes: int
    pending: int
    inflight: int
    succeeded: int
    failed: int
    load_s: float
    sampling: dict[str, float]
    sequences: RunningSequencesView | None
    load_phases: list[LoadPhaseView]


class GatewayInstancesView(msgspec.Struct, frozen=True):
    """This server's gateway: its own process, the memory of each device, and all that is loaded.
    `resources`: empty where no executions are limited (--rate-limit)."""

    pid: int
    resident_bytes: int
    machine_bytes: int
    accounts: list[DeviceMemoryView]
    items: list[RunningVersionView]
    resources: list[LimitedResourceView]


class TensorSpecView(msgspec.Struct, frozen=True):
    """An input or output. `shape`: the batch dimension included, -1 is any size."""

    name: str
    datatype: str
    shape: list[int]


class LoadedVersionView(msgspec.Struct, frozen=True):
    """A version as this server has it loaded. `config`: with everything that config.pbtxt leaves
    out, in its format; its first 256 KiB. `language`: of a language model, what it serves with."""

    model: str
    version: int
    inputs: list[TensorSpecView]
    outputs: list[TensorSpecView]
    config: str
    language: dict[str, str]


class LoadedVersionsView(msgspec.Struct, frozen=True):
    """The versions of a model that are loaded on this server, the highest first."""

    items: list[LoadedVersionView]


class LoadedFileView(msgspec.Struct, frozen=True):
    """`path` within the model's folder; `sha256` "" where there was too much to read at once."""

    path: str
    size_bytes: int
    sha256: str


class LoadedFilesView(msgspec.Struct, frozen=True):
    """The files that a version was loaded from, the first 500, and config.pbtxt as it lies there,
    "" where there is none."""

    items: list[LoadedFileView]
    config: str


class CrashingVersionView(msgspec.Struct, frozen=True):
    """A version of this server of which workers died: `deaths` of them, one within ten minutes of
    the other, from `since` to `last`, which ended as `ending` says. `ready`: of its instances."""

    server: str
    model: str
    version: int
    instances: int
    ready: int
    deaths: int
    since: Moment
    last: Moment
    ending: str


class CrashingVersionsView(msgspec.Struct, frozen=True):
    items: list[CrashingVersionView]


async def show(call: AuthorizedCall) -> EndpointResult:
    found = await call.services.ask_gateway(RunningQuery(call.query.get("model", "")))
    return EndpointResult(msgspec.convert(found, GatewayInstancesView, from_attributes=True))


async def loaded(call: AuthorizedCall) -> EndpointResult:
    found = await call.services.ask_gateway(LoadedQuery(call.path["model"]))
    return EndpointResult(msgspec.convert(found, LoadedVersionsView, from_attributes=True))


async def files(call: AuthorizedCall) -> EndpointResult:
    """Raises NotFound for a version that is not loaded here."""
    model, version = call.path["model"], version_asked_for(call)
    found = await call.services.ask_gateway(LoadedQuery(model))
    folders = [Path(one.folder) for one in found.items if one.version == version and one.folder]
    if not folders:
        raise NotFound(f"version {version} of '{model}' is not loaded on this server")
    view = await to_thread.run_sync(_files, folders[0], version, limiter=call.services.threads)
    return EndpointResult(view)


def version_asked_for(call: AuthorizedCall) -> int:
    """Raises NotFound for what is no number of a version."""
    text = call.path["version"]
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise NotFound(f"'{text[:40]}' is no version: they are whole numbers")
    return int(text)


_digests = FileDigests()


def _files(folder: Path, version: int) -> LoadedFilesView:
    try:
        found = _digests.look(folder, version)
    except OSError as error:
        raise NotFound(f"the folder cannot be read any more: {error.strerror}") from error
    items = [LoadedFileView(one.path, one.size_bytes, one.sha256) for one in found]
    return LoadedFilesView(items, written_config(folder))


async def deaths(call: AuthorizedCall) -> EndpointResult:
    found: CrashReport = await call.services.ask_gateway(CrashQuery())
    server = call.services.facts.server_id
    return EndpointResult(CrashingVersionsView([_crashes(server, one) for one in found.items]))


def _crashes(server: str, one: VersionCrashes) -> CrashingVersionView:
    times = {name: datetime.fromtimestamp(getattr(one, name), UTC) for name in ("since", "last")}
    return CrashingVersionView(**{**to_builtins(one), **times, "server": server})


OPERATIONS = (
    Operation(
        verb="GET",
        path="/instances",
        access=Access(Action.READ),
        tag="Server",
        summary="What is loaded on this server: instances, their workers, the memory granted",
        act=show,
        query=(Param("model", "Only versions of this model."),),
        gives=GatewayInstancesView,
    ),
    Operation(
        verb="GET",
        path="/instances/{model}",
        access=Access(Action.READ, "model"),
        tag="Server",
        summary="Inputs, outputs and completed config of a model's versions loaded on this server",
        act=loaded,
        gives=LoadedVersionsView,
    ),
    Operation(
        verb="GET",
        path="/instances/{model}/versions/{version}/files",
        access=Access(Action.READ, "model"),
        tag="Server",
        summary="The files that a version on this server was loaded from, with sizes and digests",
        act=files,
        gives=LoadedFilesView,
    ),
    Operation(
        verb="GET",
        path="/deaths",
        access=Access(Action.READ),
        tag="Server",
        summary="Versions on this server whose workers died, how often and since when",
        act=deaths,
        gives=CrashingVersionsView,
    ),
)
