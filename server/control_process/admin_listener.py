"""The admin port: opened at the start, or, while somebody else has it, as soon as it is free.

Without it the control process does the rest of its work: what is deployed is served, rollouts go
on, and the command line has its Unix socket.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from server.http1.connection import Http1Connection
from server.http1.listener import HttpListener, start
from server.listen_address import ListenAddress

RETRY_S = 2.0
"""Between two tries to open a port that cannot be opened."""

EXIT_S = 5.0
"""How long running requests may go on when the listener stops."""

_log = logging.getLogger(__name__)


class AdminListener:
    """One TCP listener that tries every `retry_s`; `opened` is called once, when it listens."""

    def __init__(
        self,
        app: Any,
        place: ListenAddress,
        protocol: type[Http1Connection],
        opened: Callable[[], None],
        retry_s: float = RETRY_S,
    ) -> None:
        self._app = app
        self._place = place
        self._protocol = protocol
        self._opened = opened
        self._retry_s = retry_s
        self._listener: HttpListener | None = None

    @property
    def port(self) -> int:
        """The number it got; the configured one before."""
        return self._place.port if self._listener is None else self._listener.port

    async def open(self) -> None:
        """Try once, and log why it fails."""
        try:
            self._listener = await self._start()
        except OSError as error:
            _log.error(
                "the admin port %s:%d cannot be opened: %s; models are served without console and "
                "git, and it is tried again every %g s; free the port, or choose another with "
                "--admin-port",
                self._place.address,
                self._place.port,
                error.strerror or error,
                self._retry_s,
            )

    async def run(self) -> None:
        """Return when it listens; further failures are not logged."""
        while self._listener is None:
            await asyncio.sleep(self._retry_s)
            with suppress(OSError):
                self._listener = await self._start()
                _log.info("the admin port %s:%d is open now", self._place.address, self.port)
        self._opened()

    async def stop(self) -> None:
        if self._listener is not None:
            await stop(self._listener)

    async def _start(self) -> HttpListener:
        """Raises OSError."""
        return await start(self._app, self._place, self._protocol)


async def stop(listener: HttpListener) -> None:
    """Stop a listener of the control process, with `EXIT_S` for what it answers."""
    await listener.stop(time.monotonic_ns() + int(EXIT_S * 1e9))
