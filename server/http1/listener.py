"""An HTTP listener: our connections on our own socket, so that we decide how it ends."""

import asyncio
import contextlib
import time
from typing import Any

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from server.http1.connection import Http1Connection
from server.listen_address import ListenAddress, ListeningSocket, open_place, url_of


class _Connections(set[Any]):
    """The open connections; uvicorn's protocol adds and discards itself. Once `stopped`, who still
    comes is sent away."""

    def __init__(self) -> None:
        super().__init__()
        self._waiter: asyncio.Event | None = None
        self.stopped = False

    def add(self, connection: Any) -> None:
        super().add(connection)
        if self.stopped:  # it has no transport yet
            asyncio.get_running_loop().call_soon(lambda: connection.transport.abort())

    def discard(self, connection: Any) -> None:
        super().discard(connection)
        if self._waiter is not None and not self:
            self._waiter.set()

    async def emptied(self) -> None:
        if self:
            self._waiter = asyncio.Event()
            await self._waiter.wait()


class HttpListener:
    """One open place and its connections. `port` is the number it got, 0 for a Unix socket."""

    def __init__(self, opened: ListeningSocket, url: str, state: ServerState) -> None:
        self._opened = opened
        self._state = state
        self._connections = state.connections = _Connections()
        self.port = opened.port
        self.url = url

    async def stop(self, deadline_ns: int) -> None:
        """Accept no more, let running exchanges end until `time.monotonic_ns` passes
        `deadline_ns`, close idle connections at once."""
        self._connections.stopped = True
        self._opened.close()
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


async def start(
    app: Any, place: ListenAddress, protocol: type[HttpToolsProtocol] = Http1Connection
) -> HttpListener:
    """Serve an ASGI application. Raises OSError when the place cannot be opened."""
    config = Config(
        app,
        http=protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,  # uvicorn would believe every X-Forwarded-For from this machine
    )
    config.load()
    state = ServerState()
    loop = asyncio.get_running_loop()

    def connect() -> HttpToolsProtocol:
        return protocol(config=config, server_state=state, app_state={}, _loop=loop)

    opened = await open_place(place, connect)
    return HttpListener(opened, url_of(place, opened.port), state)
