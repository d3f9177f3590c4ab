"""The control process's end of the link: hands out the desired state, receives what is loaded."""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

from control.access.peer import peer_uid
from control.desired import DesiredState
from control.drift.points import DriftScores, DriftStored, DriftWindow
from control.gateways.messages import (
    PROTOCOL,
    Answered,
    ArmReports,
    Ask,
    DesiredUpdate,
    Exposures,
    FeedbackRows,
    Hello,
    LoadReport,
    Message,
    Unknown,
    answer_of,
)
from control.gateways.queries import Query
from control.gateways.wire import BadFrame, encode_state, pack_frame, read_frame
from control.series.points import SeriesStored, SeriesWindow

GREETING_S = 5.0
WRITE_S = 10.0
"""Longest a gateway may take to greet, and to read a desired state; then it may connect anew."""

_log = logging.getLogger(__name__)


Loaded = Callable[[LoadReport], Awaitable[None]]
Counted = Callable[[ArmReports], Awaitable[None]]
Recorded = Callable[[Exposures | FeedbackRows], Awaitable[None]]

Windowed = Callable[[SeriesWindow], Awaitable[SeriesStored | None]]
"""Stores a window; None where it is to be sent again."""

Drifted = Callable[[DriftWindow], Awaitable[DriftStored | None]]
"""The same for a window of drift."""

ANSWER_S = 3.0
"""How long a gateway may take to answer a question; its loop never stalls that long."""


class GatewayUnreachable(Exception):
    """This server's gateway cannot be asked just now."""


async def _ignore(_message: object) -> Any:
    """Where nobody asks for what routes report."""


class LinkServer:
    """Listens for gateways of the same user on a Unix socket; on the loop's thread. `counted` gets
    what their routes have counted, `recorded` the exposures and feedback of experiments, `windowed`
    the windows of time series, `drifted` those of drift."""

    def __init__(
        self,
        path: Path,
        loaded: Loaded,
        counted: Counted = _ignore,
        recorded: Recorded = _ignore,
        windowed: Windowed = _ignore,
        drifted: Drifted = _ignore,
    ) -> None:
        self._path = path
        self._loaded = loaded
        self._counted = counted
        self._recorded = recorded
        self._windowed = windowed
        self._drifted = drifted
        self._latest: bytes | None = None
        self._scores: bytes | None = None
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
        self._latest = pack_frame(DesiredUpdate(encode_state(desired)))
        for gateway in self._gateways:
            gateway.news.set()

    def tell_scores(self, found: DriftScores) -> None:
        """Give every gateway, and each that connects later, what was found of drift."""
        self._scores = pack_frame(found)
        for gateway in self._gateways:
            gateway.writer.write(self._scores)

    async def ask(self, server: str, query: Query) -> Any:
        """A gateway's answer: the query's `Answer`. Raises GatewayUnreachable."""
        gateway = next((one for one in self._gateways if one.server == server), None)
        if gateway is None:
            raise GatewayUnreachable(
                f"the gateway of {server} is not connected; try again in a moment"
            )
        try:
            async with asyncio.timeout(ANSWER_S):
                return await gateway.ask(query)
        except (TimeoutError, ConnectionError, ValueError) as error:
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
            if isinstance(hello, Hello):
                _check_protocol(hello)
                await self._keep(_GatewayConnection(hello.server, writer), reader)
        except (BadFrame, TimeoutError, ConnectionError) as error:
            _log.warning("a gateway's connection ended: %s", error or type(error).__name__)
        finally:
            writer.close()

    async def _keep(self, gateway: "_GatewayConnection", reader: asyncio.StreamReader) -> None:
        self._gateways.add(gateway)
        gateway.news.set()
        if self._scores is not None:
            gateway.writer.write(self._scores)
        telling = asyncio.create_task(self._tell(gateway))
        try:
            while (message := await read_frame(reader)) is not None:
                await self._take(gateway, message)
        finally:
            self._gateways.discard(gateway)
            gateway.gone()
            telling.cancel()
            await asyncio.gather(telling, return_exceptions=True)

    async def _take(self, gateway: "_GatewayConnection", message: Message | Unknown) -> None:
        """Raises BadFrame for one that speaks for another server."""
        match message:
            case LoadReport() | ArmReports() | SeriesWindow() | DriftWindow() if (
                message.server != gateway.server
            ):
                raise BadFrame(f"gateway {gateway.server} reports for {message.server:.100}")
            case LoadReport():
                await self._loaded(message)
            case ArmReports():
                await self._counted(message)
            case Exposures() | FeedbackRows():
                await self._recorded(message)
            case SeriesWindow():
                gateway.start(self._keep_window(gateway, self._windowed(message)))
            case DriftWindow():
                gateway.start(self._keep_window(gateway, self._drifted(message)))
            case Answered():
                gateway.answered(message)
            case Unknown():
                _log.info("gateway %s sends '%.50s', unknown here", gateway.server, message.kind)

    async def _keep_window(
        self, gateway: "_GatewayConnection", storing: Awaitable[SeriesStored | DriftStored | None]
    ) -> None:
        stored = await storing
        if stored is not None:
            gateway.writer.write(pack_frame(stored))

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
        self._waiting: dict[int, asyncio.Future[Answered]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._number = 0

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Do it beside what else the gateway sends; `gone` ends it."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def ask(self, query: Query) -> Any:
        """Raises ConnectionError when it goes before it has answered, ValueError for an answer that
        is none."""
        self._number += 1
        number = self._number
        answer: asyncio.Future[Answered] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            self.writer.write(pack_frame(Ask(number, query)))
            await self.writer.drain()
            return answer_of(query, await answer)
        finally:
            del self._waiting[number]

    def answered(self, message: Answered) -> None:
        waiting = self._waiting.get(message.number)
        if waiting is not None and not waiting.done():
            waiting.set_result(message)

    def gone(self) -> None:
        for task in self._tasks:
            task.cancel()
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(ConnectionResetError("the gateway has disconnected"))


def same_user(writer: asyncio.StreamWriter) -> bool:
    """Whether the peer of a Unix socket runs as our own user, or as root, and is no worker in its
    sandbox."""
    return peer_uid(writer.get_extra_info("socket")) in (os.getuid(), 0)


def _check_protocol(hello: Hello) -> None:
    if hello.protocol != PROTOCOL:
        _log.warning(
            "gateway %s speaks version %d of the link, this control process version %d; restart "
            "the server to have one version",
            hello.server,
            hello.protocol,
            PROTOCOL,
        )
