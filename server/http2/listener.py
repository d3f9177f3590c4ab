"""An open port that speaks gRPC, and its connections.

Opened and stopped by `server.grpc.service`; each client gets a `Http2Connection`.
"""

import asyncio
import logging
from contextlib import suppress

from server.http2.calls.service import PLAIN_KINDS, CallClasses, GrpcService, Guard, Methods
from server.http2.connection import Http2Connection
from server.http2.limits import GrpcLimits
from server.listen_address import ListenAddress, ListeningSocket, open_place

ABORT_S = 10.0
"""How long connections and calls that are cut off may take to end, which is a turn of the loop."""

_log = logging.getLogger(__name__)


async def listen(
    methods: Methods,
    place: ListenAddress,
    limits: GrpcLimits,
    guard: Guard | None = None,
    kinds: CallClasses = PLAIN_KINDS,
) -> "Http2Listener":
    """Serve `methods` at `place`, within `limits`.

    `guard` may refuse a call by its head; `kinds` are the classes of calls. Raises OSError when
    the place cannot be opened.
    """
    listener = Http2Listener(GrpcService(methods, limits.message_bytes, guard, kinds), limits)
    await listener.open(place)
    return listener


class Http2Listener:
    """One place. `port` is the number it got."""

    def __init__(self, service: GrpcService, limits: GrpcLimits) -> None:
        self.port = 0
        self._service = service
        self._limits = limits
        self._connections: set[Http2Connection] = set()
        self._empty = asyncio.Event()
        self._opened: ListeningSocket | None = None
        self._stopped = False

    async def open(self, place: ListenAddress) -> None:
        self._opened = await open_place(place, self._connect)
        self.port = self._opened.port

    async def stop(self, grace_s: float) -> None:
        """Accept no more; return when what is inside is answered, or cut off after `grace_s`."""
        self._stopped = True
        if self._opened is not None:
            self._opened.close()
        for connection in list(self._connections):
            connection.drain()
        with suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                await self._emptied()
        for connection in list(self._connections):
            connection.abort()
        try:
            async with asyncio.timeout(ABORT_S):
                await self._emptied()
                await self._service.idle()
        except TimeoutError:
            left = len(self._connections)
            _log.error("port %d (gRPC) stops with %d connections not closed", self.port, left)

    async def _emptied(self) -> None:
        while self._connections:
            self._empty.clear()
            await self._empty.wait()

    def _connect(self) -> Http2Connection:
        return Http2Connection(self._service, self._here, self._gone, self._limits)

    def _here(self, connection: Http2Connection) -> None:
        self._connections.add(connection)
        if self._stopped:
            connection.abort()

    def _gone(self, connection: Http2Connection) -> None:
        self._connections.discard(connection)
        if not self._connections:
            self._empty.set()
