"""Connects the workers of models that may call others; made once by `server.gateway`."""

import asyncio
import contextlib
import socket

from backends.process.call_link import CallingInstance
from server.bls.connection import ScriptConnection
from server.bls.surroundings import ScriptServices
from server.bls.waiting import Waiting


class ScriptService:
    """Implements `backends.process.call_link.CallService` over one gateway's loop."""

    def __init__(self, services: ScriptServices) -> None:
        """Call it on the running loop."""
        self._services = services
        self._waiting = Waiting(services.surroundings)
        self._loop = asyncio.get_running_loop()

    def connect(self, instance: CallingInstance, connection: socket.socket) -> ScriptConnection:
        made = ScriptConnection(self._services, self._waiting, instance, self._loop)
        self._loop.call_soon_threadsafe(made.start, connection)
        return made

    def forget(self, spec: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, and this process ends
            self._loop.call_soon_threadsafe(self._services.metrics.forget, spec)

    def resized(self) -> None:
        self._waiting.look_again()
