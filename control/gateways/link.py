"""The control process's end of the link: hands gateways the desired state, hears what they load."""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from control.access.peer import peer_uid
from control.desired import DesiredState, encode
from control.gateways.arm_reports import ArmReports, windows_of
from control.gateways.frames import BadFrame, pack_frame, read_frame

GREETING_S = 5.0
WRITE_S = 10.0
"""Longest a gateway may take to greet, and to read a desired state; then it may connect anew."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoadRow:
    """What a gateway says of one version; `version` 0 is the model as a whole."""

    model: str
    version: int
    state: str
    reason: str


@dataclass(frozen=True, slots=True)
class LoadReport:
    """All a gateway says: `settled` when nothing is being loaded for `revision` any more.

    `in_use`: digests of the snapshots whose files something still reads. `pending`: subject and
    reason of each alias or route that is not in force.
    """

    server: str
    revision: int
    settled: bool
    rows: tuple[LoadRow, ...]
    in_use: frozenset[str]
    pending: tuple[tuple[str, str], ...] = ()


Heard = Callable[[LoadReport], Awaitable[None]]
Counted = Callable[[ArmReports], Awaitable[None]]
Tried = Callable[[Mapping[str, Any]], Awaitable[None]]


ANSWER_S = 3.0
"""How long a gateway may take to answer a question; its loop never stalls that long."""


class GatewayUnreachable(Exception):
    """This server's gateway cannot be asked just now."""


async def _nobody(told: object) -> None:
    """Where nobody asks for what routes tell."""


class LinkServer:
    """Listens for gateways of the same user on a Unix socket; on the loop's thread. `counted` gets
    what their routes have counted, `tried` the frames for experiments."""

    def __init__(
        self, path: Path, heard: Heard, counted: Counted = _nobody, tried: Tried = _nobody
    ) -> None:
        self._path = path
        self._heard = heard
        self._counted = counted
        self._tried = tried
        self._latest: bytes | None = None
        self._gateways: set[_GatewayConnection] = set()
        self._links: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        """Raises OSError."""
        self._path.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(self._accept, self._path)
        os.chmod(self._path, 0o600)

    def hand(self, desired: DesiredState) -> None:
        """Give every gateway, and each that connects later, this state."""
        self._latest = pack_frame({"kind": "desired", "state": encode(desired)})
        for gateway in self._gateways:
            gateway.news.set()

    async def ask(self, server: str, what: str, **facts: Any) -> Mapping[str, Any]:
        """What a gateway answers. Raises GatewayUnreachable."""
        gateway = next((one for one in self._gateways if one.server == server), None)
        if gateway is None:
            raise GatewayUnreachable(
                f"the gateway of {server} is not connected; try again in a moment"
            )
        try:
            async with asyncio.timeout(ANSWER_S):
                return await gateway.ask(what, facts)
        except (TimeoutError, ConnectionError) as error:
            raise GatewayUnreachable(
                f"the gateway of {server} does not answer; try again"
            ) from error

    async def close(self) -> None:
        """Stop listening, and end every link: none is left for the end of the loop to cancel."""
        if self._server is None:
            return
        self._server.close()
        for link in self._links:
            link.cancel()
        await asyncio.gather(*self._links, return_exceptions=True)
        await self._server.wait_closed()
        self._path.unlink(missing_ok=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A coroutine given to start_unix_server is a task that nobody can wait for, and that
        # Python 3.11 reports with a traceback when it is cancelled.
        link = asyncio.get_running_loop().create_task(self._meet(reader, writer))
        self._links.add(link)
        link.add_done_callback(self._links.discard)

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if not same_user(writer):
                return
            async with asyncio.timeout(GREETING_S):
                hello = await read_frame(reader)
            if hello is not None and hello.get("kind") == "hello":
                await self._keep(_GatewayConnection(str(hello["server"]), writer), reader)
        except (BadFrame, KeyError, TypeError, ValueError, TimeoutError, ConnectionError) as error:
            _log.warning("a gateway's connection ended: %s", error or type(error).__name__)
        finally:
            writer.close()

    async def _keep(self, gateway: "_GatewayConnection", reader: asyncio.StreamReader) -> None:
        self._gateways.add(gateway)
        gateway.news.set()
        telling = asyncio.create_task(self._tell(gateway))
        try:
            while (frame := await read_frame(reader)) is not None:
                if frame.get("kind") == "loads":
                    await self._heard(_loads(gateway.server, frame))
                elif frame.get("kind") == "windows":
                    await self._counted(windows_of(gateway.server, frame))
                elif frame.get("kind") in ("exposures", "feedback"):
                    await self._tried(frame)
                elif frame.get("kind") == "answer":
                    gateway.answered(frame)
        finally:
            self._gateways.discard(gateway)
            gateway.gone()
            telling.cancel()
            await asyncio.gather(telling, return_exceptions=True)

    async def _tell(self, gateway: "_GatewayConnection") -> None:
        """The latest state whenever there is one: what came between is not worth sending."""
        try:
            while True:
                await gateway.news.wait()
                gateway.news.clear()
                if self._latest is not None:
                    gateway.writer.write(self._latest)
                    async with asyncio.timeout(WRITE_S):
                        await gateway.writer.drain()
        except (TimeoutError, ConnectionError) as error:
            _log.warning(
                "gateway %s does not read its messages: %s", gateway.server, error or "too slow"
            )
            gateway.writer.close()


class _GatewayConnection:
    """One gateway that is connected."""

    def __init__(self, server: str, writer: asyncio.StreamWriter) -> None:
        self.server = server
        self.writer = writer
        self.news = asyncio.Event()
        self._asked: dict[int, asyncio.Future[Mapping[str, Any]]] = {}
        self._number = 0

    async def ask(self, what: str, facts: Mapping[str, Any]) -> Mapping[str, Any]:
        """Raises ConnectionError when it goes before it has answered."""
        self._number += 1
        number = self._number
        answer: asyncio.Future[Mapping[str, Any]] = asyncio.get_running_loop().create_future()
        self._asked[number] = answer
        try:
            self.writer.write(pack_frame({**facts, "kind": "ask", "number": number, "what": what}))
            await self.writer.drain()
            return await answer
        finally:
            del self._asked[number]

    def answered(self, frame: Mapping[str, Any]) -> None:
        waiting = self._asked.get(frame["number"])
        if waiting is not None and not waiting.done():
            waiting.set_result(frame)

    def gone(self) -> None:
        for waiting in self._asked.values():
            if not waiting.done():
                waiting.set_exception(ConnectionResetError("the gateway has disconnected"))


def same_user(writer: asyncio.StreamWriter) -> bool:
    """Whether the peer of a Unix socket runs as our own user, or as root, and is no worker in its
    sandbox."""
    return peer_uid(writer.get_extra_info("socket")) in (os.getuid(), 0)


def _loads(server: str, frame: Mapping[str, Any]) -> LoadReport:
    """Raises KeyError, TypeError for a frame that is no `loads`."""
    rows = tuple(
        LoadRow(str(model), int(version), str(state), str(reason))
        for model, version, state, reason in frame["rows"]
    )
    in_use = frozenset(map(str, frame["in_use"]))
    pending = tuple((str(subject), str(reason)) for subject, reason in frame.get("pending", ()))
    return LoadReport(server, int(frame["revision"]), bool(frame["settled"]), rows, in_use, pending)
