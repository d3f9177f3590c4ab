"""Both doors over real identity models, on a loop in a thread, to be looked into: `with house()`.

What a client left behind shows here, and not from outside: the loop's tasks, the schedulers'
requests, the connections that are open.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvloop

from server.dataplane import DataPlane
from server.listeners import Listeners
from server.process.loop_lag import LoopLag
from server.served_version import ServedVersion
from server.settings.table import Settings
from support.grpc import Shelf, put
from support.server import free_ports

PATIENCE_SECS = 60.0


class House:
    """The open doors; ports are of 127.0.0.1."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, served: list[ServedVersion], ports: list[int]
    ):
        self._loop = loop
        self.served = {one.version.name: one for one in served}
        self.http_port, self.grpc_port = ports
        self.unexpected: list[dict[str, Any]] = []
        loop.set_exception_handler(lambda _, context: self.unexpected.append(context))

    @property
    def grpc(self) -> str:
        return f"127.0.0.1:{self.grpc_port}"

    def on_loop(self, work: Callable[[], Any]) -> Any:
        """`work()`'s result, from the loop's thread."""

        async def run() -> Any:
            return work()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(PATIENCE_SECS)

    def tasks(self) -> list[str]:
        """The loop's tasks but the one that asks."""

        def names() -> list[str]:
            asking = asyncio.current_task()
            return [repr(one) for one in asyncio.all_tasks() if one is not asking]

        found: list[str] = self.on_loop(names)
        return found

    def inside(self) -> int:
        """Requests accepted and not yet answered, and those that wait among them once more."""
        found: int = self.on_loop(
            lambda: sum(
                one.scheduler.inflight() + one.counters.pending for one in self.served.values()
            )
        )
        return found

    def cancelled(self, model: str) -> int:
        """Requests of a model whose clients went."""
        count: int = self.on_loop(lambda: self.served[model].counters.failure["CANCELED"])
        return count

    def wait_for(self, true: Callable[[], bool], what: str) -> None:
        """Poll until `true()` holds."""
        deadline = time.monotonic() + PATIENCE_SECS
        while not true():
            assert time.monotonic() < deadline, f"waited {PATIENCE_SECS} s for {what}"
            time.sleep(0.005)


@contextmanager
def house(*texts: str) -> Iterator[House]:
    """Doors on free ports over identity models of these configs; nothing may go wrong unseen."""
    opened: list[House] = []
    up, done = threading.Event(), threading.Event()
    thread = threading.Thread(target=lambda: _run(texts, opened, up, done))
    thread.start()
    try:
        assert up.wait(60), "the doors did not open"
        yield opened[0]
    finally:
        done.set()
        thread.join(60)
        assert not thread.is_alive(), "the doors did not close"
    assert opened[0].unexpected == []


def _run(
    texts: tuple[str, ...], opened: list[House], up: threading.Event, done: threading.Event
) -> None:
    async def main() -> None:
        served = [put(text) for text in texts]
        ports = free_ports(2)
        doors = Listeners()
        await doors.open(DataPlane(Shelf(served), "modelyard", "0.0.0"), LoopLag(), settings(ports))
        opened.append(House(asyncio.get_running_loop(), served, ports))
        up.set()
        await asyncio.to_thread(done.wait)
        await doors.stop(time.monotonic_ns() + 5_000_000_000)
        for one in served:
            await one.scheduler.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


def settings(ports: list[int]) -> Settings:
    http_port, grpc_port = ports
    return Settings(http_port=http_port, grpc_port=grpc_port, allow_metrics=False)
