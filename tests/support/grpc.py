"""A real gRPC listener over real identity models, in a thread; `with open_listener() as listener`.

Clients of any kind may then call from the test's own thread.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from google.protobuf import text_format

from backends.identity import IdentityBackend
from backends.seam import Device
from repository.model import ModelConfig, ModelVersion
from schedulers.build import build
from schedulers.counters import Counters
from schedulers.policy.cores import CoreTokens
from schedulers.policy.resource_limits import (
    GLOBAL,
    InstanceLimit,
    Resource,
    ResourceLimiter,
)
from server.buffers import BufferBudget
from server.dataplane import DataPlane
from server.errors import NotReady, UnknownModel, Unsupported
from server.fleet.residency.residency import Residency
from server.grpc.service import GrpcPort, start
from server.overrides import Override
from server.process.loop_lag import LoopActivity
from server.served_version import (
    MemoryRow,
    ResidencyRow,
    ServedVersion,
    ServingState,
    VersionRow,
    not_ready_text,
)
from server.settings.table import Settings
from server.signature import compile_signature

IDENTITY = """
name: "identity" backend: "identity" max_batch_size: 8
input { name: "INPUT0" data_type: TYPE_FP32 dims: 16 }
output { name: "OUTPUT0" data_type: TYPE_FP32 dims: 16 }
dynamic_batching {}
"""
PAIR = """
name: "pair" backend: "identity"
input { name: "INPUT0" data_type: TYPE_INT32 dims: 4 }
input { name: "INPUT1" data_type: TYPE_STRING dims: -1 }
output { name: "OUTPUT0" data_type: TYPE_INT32 dims: 4 }
output { name: "OUTPUT1" data_type: TYPE_STRING dims: -1 }
"""
SLOW = """
name: "slow" backend: "identity" max_batch_size: 1
input { name: "INPUT0" data_type: TYPE_FP32 dims: 1 }
output { name: "OUTPUT0" data_type: TYPE_FP32 dims: 1 }
parameters { key: "execute_delay_ms" value { string_value: "1500" } }
dynamic_batching { default_queue_policy { max_queue_size: 2 } }
"""


def parse(text: str) -> ModelConfig:
    return text_format.Parse(text, ModelConfig())


def put(text: str, number: int = 1) -> ServedVersion:
    """One identity model served by a real scheduler; call it on the running loop."""
    nowhere = Path("nowhere")
    version = ModelVersion(parse(text).name, number, nowhere, nowhere, parse(text), "")
    config = IdentityBackend().complete(version, 4)
    version = ModelVersion(version.name, number, nowhere, nowhere, config, "")
    counters = Counters()
    instances = IdentityBackend().load(version, Device("cpu", 0, 1), 1).instances
    return ServedVersion(
        version=version,
        signature=compile_signature(config, number),
        scheduler=build(config, instances, counters, CoreTokens(2), 1000),
        counters=counters,
        instances=instances,
        load_seconds=0.25,
    )


class OneOnDemand(Residency):
    """That of a server with one version that waits for its first request."""

    def rows(self) -> list[ResidencyRow]:
        return [ResidencyRow("m", 1, False, False, False, 0, None, 0, 0, "")]


class Shelf:
    """Models that are there from the start and stay until `remove`: a fleet without files."""

    def __init__(self, served: Sequence[ServedVersion]) -> None:
        self._served = list(served)

    def get(self, name: str, version: int | None) -> ServedVersion:
        of_model = [one for one in self._served if one.version.name == name]
        if not of_model:
            raise UnknownModel(f"Request for unknown model: '{name}' is not found")
        for one in reversed(of_model):
            if version in (None, one.version.number):
                return one
        if version == 99:
            raise NotReady(not_ready_text(name, 99))
        raise UnknownModel(f"Request for unknown model: '{name}' version {version} is not found")

    def remove(self, served: ServedVersion) -> None:
        """Let nobody find it any more."""
        self._served.remove(served)

    @property
    def limiter(self) -> ResourceLimiter:
        """That of a server whose first model needs a resource."""
        found = ResourceLimiter()
        found.register({self: InstanceLimit({Resource("R", GLOBAL): 2})})
        return found

    @property
    def residency(self) -> Residency:
        return OneOnDemand(None, 1, 1.0)

    def served(self) -> Sequence[ServedVersion]:
        return self._served

    def rows(self) -> Sequence[VersionRow]:
        known = [
            VersionRow(one.version.name, one.version.number, ServingState.READY, "")
            for one in self._served
        ]
        return [*known, VersionRow("broken", 1, ServingState.FAILED, "weights missing")]

    def holders_of(self, name: str, version: int | None, key: int | str) -> list[ServedVersion]:
        return []

    def memory_rows(self) -> Sequence[MemoryRow]:
        return [MemoryRow("cpu", "", 1000), MemoryRow("cpu", "m version 1", 10)]

    def ready(self) -> bool:
        return True

    async def load(self, name: str, override: Override | None = None) -> None:
        raise Unsupported("explicit model load / unload is not allowed if polling is enabled")

    async def unload(self, name: str, dependents: bool) -> None:
        raise Unsupported("explicit model load / unload is not allowed if polling is enabled")


class Open:
    """The open listener and what stands behind it."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, dataplane: DataPlane, listener: GrpcPort
    ) -> None:
        self._loop = loop
        self.dataplane = dataplane
        self.listener = listener
        self.url = f"127.0.0.1:{listener.port}"

    def on_loop(self, work: Callable[[], Any]) -> Any:
        """`work()`'s result, from the loop's thread; a coroutine is awaited there."""

        async def run() -> Any:
            result = work()
            return await result if asyncio.iscoroutine(result) else result

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(60)

    def served(self, name: str) -> ServedVersion:
        return self.dataplane.models.get(name, None)

    def wait_for(self, true: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
        """Poll until `true()` holds on the loop."""
        deadline = time.monotonic() + seconds
        while not self.on_loop(true):
            assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
            time.sleep(0.005)


@contextmanager
def open_listener(*texts: str, **settings: Any) -> Iterator[Open]:
    """A listener on a free port over identity models of these configs (default: those above)."""
    opened: list[Open] = []
    up, done = threading.Event(), threading.Event()

    async def main() -> None:
        shelf = Shelf([put(text) for text in texts or (IDENTITY, PAIR, SLOW)])
        dataplane = DataPlane(shelf, "modelyard", "0.0.0")
        said = Settings(**{"grpc_port": 0, **settings})
        budget = BufferBudget(said.buffer_bytes)
        listener = await start(dataplane, said, None, budget, LoopActivity())
        opened.append(Open(asyncio.get_running_loop(), dataplane, listener))
        up.set()
        await asyncio.to_thread(done.wait)
        await listener.stop(5.0)
        for served in shelf.served():
            await served.scheduler.close()

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    try:
        assert up.wait(60), "the listener did not open"
        yield opened[0]
    finally:
        done.set()
        thread.join(60)
        assert not thread.is_alive(), "the listener did not close"
