"""What runs on this server now, the memory it was granted and whose workers died, as its gateway
tells.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from msgspec import to_builtins

from control.access.scopes import Action
from control.api.call import Access, AuthorizedCall, EndpointResult, Operation
from control.clock import text_of
from control.gateways.queries import (
    CrashQuery,
    CrashReport,
    LoadedQuery,
    RunningQuery,
    VersionCrashes,
)


@dataclass(frozen=True, slots=True)
class MemoryGrantView:
    """Memory of a device that one holder was granted; it can give back what is above the least."""

    holder: str
    bytes: int
    least_bytes: int


@dataclass(frozen=True, slots=True)
class DeviceMemoryView:
    """A device's memory. `budget_bytes` null: no bound is set. `grants`: the largest 50."""

    device: str
    budget_bytes: int | None
    granted_bytes: int
    holders: int
    grants: list[MemoryGrantView]


@dataclass(frozen=True, slots=True)
class RunningVersionView:
    """A version that is loaded. `deaths` of its workers since it was; `resident_bytes` of its
    workers, 0 where it runs inside the gateway; `pending` requests wait, `inflight` have not been
    answered; `sandbox` is what confines its workers, "" without any;
    `succeeded` and `failed` requests since it was loaded; `sampling`: a language model's defaults,
    by name, where a request does not say."""

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


@dataclass(frozen=True, slots=True)
class GatewayInstancesView:
    """This server's gateway: its own process, the memory of each device, and all that is loaded."""

    pid: int
    resident_bytes: int
    machine_bytes: int
    accounts: list[DeviceMemoryView]
    items: list[RunningVersionView]


@dataclass(frozen=True, slots=True)
class TensorSpecView:
    """An input or output. `shape`: the batch dimension included, -1 is any size."""

    name: str
    datatype: str
    shape: list[int]


@dataclass(frozen=True, slots=True)
class LoadedVersionView:
    """A version as this server has it loaded. `config`: with everything that config.pbtxt leaves
    out, in its format; its first 256 KiB."""

    model: str
    version: int
    inputs: list[TensorSpecView]
    outputs: list[TensorSpecView]
    config: str


@dataclass(frozen=True, slots=True)
class LoadedVersionsView:
    """The versions of a model that are loaded on this server, the highest first."""

    items: list[LoadedVersionView]


@dataclass(frozen=True, slots=True)
class CrashingVersionView:
    """A version of this server of which workers died: `deaths` of them, one within ten minutes of
    the other, from `since` to `last`, which ended as `ending` says. `ready`: of its instances."""

    server: str
    model: str
    version: int
    instances: int
    ready: int
    deaths: int
    since: datetime
    last: datetime
    ending: str


@dataclass(frozen=True, slots=True)
class CrashingVersionsView:
    items: list[CrashingVersionView]


async def show(call: AuthorizedCall) -> EndpointResult:
    return EndpointResult(to_builtins(await call.services.ask_gateway(RunningQuery())))


async def loaded(call: AuthorizedCall) -> EndpointResult:
    found = await call.services.ask_gateway(LoadedQuery(call.path["model"]))
    return EndpointResult(to_builtins(found))


async def deaths(call: AuthorizedCall) -> EndpointResult:
    found: CrashReport = await call.services.ask_gateway(CrashQuery())
    server = call.services.facts.server_id
    return EndpointResult({"items": [_crashes(server, one) for one in found.items]})


def _crashes(server: str, one: VersionCrashes) -> dict[str, Any]:
    times = {"since": _moment(one.since), "last": _moment(one.last)}
    return {"server": server, **to_builtins(one), **times}


def _moment(seconds: float) -> str:
    return text_of(datetime.fromtimestamp(seconds, UTC))


OPERATIONS = (
    Operation(
        verb="GET",
        path="/instances",
        access=Access(Action.READ),
        tag="Server",
        summary="What is loaded on this server: instances, their workers, the memory granted",
        act=show,
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
        path="/deaths",
        access=Access(Action.READ),
        tag="Server",
        summary="Versions on this server whose workers died, how often and since when",
        act=deaths,
        gives=CrashingVersionsView,
    ),
)
