"""Our servers in the fuzzing process itself, on Unix sockets, so that coverage is seen.

The loop runs only while an input is given; what a server logs as its own fault is kept and raised.
"""

import asyncio
import logging
import os
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import uvloop

from benchmarks.fuzz.target import Wrong
from control import state_paths
from server.control_process.program import ControlServer
from server.gateway import serve
from server.settings.table import Settings

T = TypeVar("T")
START_S = 120.0
TURNS = 40
"""Turns of the loop in which a server without more input finishes what it does with an input."""

BUSY_S, BUSY_LOOK_S = 0.5, 0.005

_CHILDREN = Path(f"/proc/self/task/{os.getpid()}/children")

MODELS = {
    "echo": """
name: "echo" backend: "identity" max_batch_size: 8
input { name: "INPUT0" data_type: TYPE_FP32 dims: -1 }
output { name: "OUTPUT0" data_type: TYPE_FP32 dims: -1 }
""",
    "text": """
name: "text" backend: "identity"
input { name: "IN" data_type: TYPE_STRING dims: [ -1 ] }
output { name: "OUT" data_type: TYPE_STRING dims: [ -1 ] }
""",
    "many": """
name: "many" backend: "identity" max_batch_size: 4
model_transaction_policy { decoupled: true }
parameters { key: "responses" value { string_value: "3" } }
input { name: "INPUT0" data_type: TYPE_INT64 dims: -1 }
output { name: "OUTPUT0" data_type: TYPE_INT64 dims: -1 }
""",
}


class Faults(logging.Handler):
    """What was logged with a traceback, or as critical."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info or record.levelno >= logging.CRITICAL:
            self.found.append(logging.Formatter().format(record))


class InProcess:
    """A server on a loop that stands still between inputs."""

    def __init__(self, loop: asyncio.AbstractEventLoop, folder: Path, faults: Faults) -> None:
        self.loop = loop
        self.folder = folder
        self._faults = faults
        loop.set_exception_handler(self._unexpected)

    def run(self, work: Awaitable[T]) -> T:
        """Run to its end. Raises Wrong for what the server logged as its own fault meanwhile."""

        async def whole() -> T:
            return await work

        result = self.loop.run_until_complete(whole())
        self.check()
        return result

    def check(self) -> None:
        if self._faults.found:
            found, self._faults.found = self._faults.found, []
            raise Wrong("\n".join(found))

    def _unexpected(self, _: Any, context: dict[str, Any]) -> None:
        self._faults.found.append(f"{context.get('message')}: {context.get('exception')!r}")


class Talk(asyncio.Protocol):
    """A client's connection: what was answered, and whether the server closed it."""

    def __init__(self) -> None:
        self.answer = bytearray()
        self.closed = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self.answer += data

    def connection_lost(self, error: Exception | None) -> None:
        self.closed.set()


async def tell(
    path: Path, data: bytes, patience_s: float = 0.0, busy: Callable[[], bool] | None = None
) -> bytes:
    """Send one input on a new connection and hang up; what was answered until then.

    A server that has begun to answer has `patience_s` to end the connection, and as long as it is
    `busy`, at most BUSY_S.
    """
    loop = asyncio.get_running_loop()
    transport, talk = await loop.create_unix_connection(Talk, str(path))
    try:
        transport.write(data)
        for _ in range(TURNS):
            await asyncio.sleep(0)
            if talk.closed.is_set():
                break
        await _closed(talk, patience_s)
        until = loop.time() + BUSY_S
        while busy is not None and busy() and loop.time() < until and not talk.closed.is_set():
            await _closed(talk, BUSY_LOOK_S)
    finally:
        transport.abort()
        for _ in range(3):
            await asyncio.sleep(0)
    return bytes(talk.answer)


async def _closed(talk: Talk, patience_s: float) -> None:
    if patience_s:
        with suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                await talk.closed.wait()


def has_children() -> bool:
    """Whether a process that this one started is still running."""
    return bool(_CHILDREN.read_bytes())


@contextmanager
def gateway(**settings: Any) -> Iterator[tuple[InProcess, Path, Path]]:
    """A gateway without a control process: itself, its REST socket, its gRPC socket."""
    with _place() as (loop, folder, faults):
        for name, config in MODELS.items():
            (folder / "models" / name / "1").mkdir(parents=True)
            (folder / "models" / name / "1" / "model.txt").write_text("identity\n")
            (folder / "models" / name / "config.pbtxt").write_text(config)
        rest, rpc = folder / "rest.sock", folder / "grpc.sock"
        stopping = asyncio.Event()
        chosen = Settings(
            model_repository=(folder / "models",),
            state_dir=folder / "state",
            http_address=f"unix:{rest}",
            grpc_address=f"unix:{rpc}",
            allow_metrics=False,
            allow_admin=False,
            exit_timeout_secs=1.0,
            **settings,
        )

        one = InProcess(loop, folder, faults)
        task = loop.create_task(serve(chosen, stopping))
        one.run(_until(lambda: _is_ready(rest), task))
        try:
            yield one, rest, rpc
        finally:
            stopping.set()
            loop.run_until_complete(task)


@contextmanager
def control_process() -> Iterator[tuple[InProcess, Path]]:
    """A control process's server without gateways: itself, and the socket of its API and git.

    Over that socket whoever runs it is an administrator.
    """
    with _place() as (loop, folder, faults):
        settings = Settings(state_dir=folder / "state", admin_port=0, model_repository=(folder,))
        stopping = asyncio.Event()
        served = ControlServer(settings, state_paths.server_id(settings.state_dir), stopping)
        one = InProcess(loop, folder, faults)
        task = loop.create_task(served.run())
        path = state_paths.sockets(settings.state_dir) / state_paths.API
        one.run(_until(lambda: _is_there(path), task))
        try:
            yield one, path
        finally:
            stopping.set()
            loop.run_until_complete(task)


@contextmanager
def _place() -> Iterator[tuple[asyncio.AbstractEventLoop, Path, Faults]]:
    loop, folder = uvloop.new_event_loop(), Path(tempfile.mkdtemp(prefix="fuzz-"))
    faults = Faults()
    asyncio.set_event_loop(loop)
    logging.getLogger().addHandler(faults)
    try:
        yield loop, folder, faults
    finally:
        logging.getLogger().removeHandler(faults)
        loop.close()
        shutil.rmtree(folder, ignore_errors=True)


async def _until(ready: Callable[[], Awaitable[bool]], task: "asyncio.Task[Any]") -> None:
    """Raises TimeoutError, and what the server raised."""
    async with asyncio.timeout(START_S):
        while not await ready():
            if task.done():
                raise Wrong(f"the server ended at its start: {task.result()!r}")
            await asyncio.sleep(0.05)


async def _is_there(path: Path) -> bool:
    return os.path.exists(path)  # noqa: ASYNC240 (nothing else runs on this loop yet)


async def _is_ready(rest: Path) -> bool:
    if not await _is_there(rest):
        return False
    ask = b"GET /v2/health/ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    return (await tell(rest, ask, 5.0)).startswith(b"HTTP/1.1 200")
