"""An HTTP listener: uvicorn's protocol on our own socket, so that we decide how it ends."""

import asyncio
import contextlib
import time
from typing import Any

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from server.dataplane import DataPlane
from server.infer_http import InferProtocol, Limits

_KEEP_ALIVE_S = 75
_BACKLOG = 2048


class _Connections(set[Any]):
    """The open connections; uvicorn's protocol adds and discards itself."""

    def __init__(self) -> None:
        super().__init__()
        self._waiter: asyncio.Event | None = None

    def discard(self, connection: Any) -> None:
        super().discard(connection)
        if self._waiter is not None and not self:
            self._waiter.set()

    async def emptied(self) -> None:
        if self:
            self._waiter = asyncio.Event()
            await self._waiter.wait()


class Listener:
    """One open port and its connections."""

    def __init__(self, server: asyncio.Server, state: ServerState) -> None:
        self._server = server
        self._state = state
        self._connections = state.connections = _Connections()

    @property
    def port(self) -> int:
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def stop(self, deadline_ns: int) -> None:
        """Accept no more, let running exchanges end until `time.monotonic_ns` passes
        `deadline_ns`, close idle connections at once."""
        self._server.close()
        for connection in list(self._state.connections):
            connection.shutdown()
        seconds = max(0.0, (deadline_ns - time.monotonic_ns()) / 1e9)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._connections.emptied()
        for connection in list(self._state.connections):
            connection.transport.abort()
        for task in list(self._state.tasks):
            task.cancel()
        await asyncio.gather(*self._state.tasks, return_exceptions=True)


async def start(app: Any, address: str, port: int) -> Listener:
    """Serve an ASGI application. Raises OSError when the port cannot be opened."""
    return await _listen(HttpToolsProtocol, app, address, port)


async def start_inference(
    app: Any, dataplane: DataPlane, limits: Limits, address: str, port: int
) -> Listener:
    """Serve inference, and `app` for every other path. Raises OSError."""
    protocol = type("Inference", (InferProtocol,), {"dataplane": dataplane, "limits": limits})
    return await _listen(protocol, app, address, port)


async def _listen(protocol: type[HttpToolsProtocol], app: Any, address: str, port: int) -> Listener:
    config = Config(
        app,
        http=protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
    )
    config.load()
    state = ServerState()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: protocol(config=config, server_state=state, app_state={}, _loop=loop),
        address,
        port,
        backlog=_BACKLOG,
    )
    return Listener(server, state)
