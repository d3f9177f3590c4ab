"""The gateway's end of the link: desired state comes in, the states of versions and the counters
of routes go out.

Connects to the control process for as long as it lives, and again when it is back.
"""

import asyncio
import itertools
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from control.desired import DesiredState
from control.drift.points import DriftScores, DriftStored, DriftWindow
from control.gateways.messages import (
    ArmReports,
    Ask,
    DesiredUpdate,
    Exposures,
    FeedbackRows,
    Hello,
    LoadReport,
    Message,
    Unknown,
    answer,
)
from control.gateways.queries import Query, QueryAnswer
from control.gateways.wire import BadFrame, decode_state, pack_frame, read_frame
from control.series.points import SeriesStored, SeriesWindow

RETRY_S = 0.2
"""Between two tries to connect; the socket is local, and a control process starts in a second."""

BROKEN_S = 5.0
"""Until the link is made anew after an error of ours: the log is not to be flooded."""

WRITE_S = 10.0
"""Longest the control process may take to read what is reported; then the link is made anew."""

COUNT_S, ALL_EVERY = 1.0, 5
"""Between two reports of what routes have counted; each fifth tells everything, so that the control
process knows that nothing was missed, and that we live."""

Reports = Callable[[], LoadReport]
"""What to report now."""

Counts = Callable[
    [str, bool], Iterator[ArmReports | Exposures | FeedbackRows | SeriesWindow | DriftWindow]
]
"""What routes of this server have counted and noted: what is new, or everything."""

Stored = Callable[[SeriesStored | DriftStored | DriftScores], None]
"""A window of the time series, or of drift, is in the database; or what was found of drift."""

Answers = Callable[[Query], QueryAnswer]
"""What the control process asks for, and is waiting for; on the loop, so it must be brief."""

_log = logging.getLogger(__name__)


class ControlLink:
    """One gateway's link. `on_desired` gets every desired state that arrives; all on the loop's
    thread.

    `report()` says that there may be something new to report; the frame is asked for when it can
    be sent, so that changes in quick succession make one frame. `counts` is asked every second, and
    upon `count()`.
    """

    def __init__(
        self,
        path: Path,
        server: str,
        on_desired: Callable[[DesiredState], None],
        reports: Reports,
        counts: Counts,
        answers: Answers,
        stored: Stored = lambda _: None,
    ) -> None:
        self._path = path
        self._server = server
        self._on_desired = on_desired
        self._reports = reports
        self._counts = counts
        self._answers = answers
        self._stored = stored
        self._due = asyncio.Event()
        self._news = asyncio.Event()
        self._reported: LoadReport | None = None
        self.connected = False
        self.fetched = asyncio.Event()
        """Set once a desired state has arrived."""

    def report(self) -> None:
        self._news.set()

    def count(self) -> None:
        """There is something to ask `counts` for."""
        self._due.set()

    async def run(self) -> None:
        """Hold the link until cancelled."""
        while True:
            pause_s = RETRY_S
            try:
                await self._connect()
            except Exception:  # noqa: BLE001 - the next state, a kill switch perhaps, must arrive
                _log.exception("the connection to the control process failed. This is a bug.")
                pause_s = BROKEN_S
            await asyncio.sleep(pause_s)

    async def _connect(self) -> None:
        """One connection, to its loss; nothing where there is none to be had. Raises what the
        gateway's own calls do, also OSError."""
        with suppress(ConnectionError, TimeoutError):  # nobody listens there any more
            try:
                reader, writer = await asyncio.open_unix_connection(self._path)
            except OSError:
                return  # nobody listens there yet
            await self._hold(reader, writer)

    async def _hold(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, from greeting to loss. Raises ConnectionError, TimeoutError."""
        try:
            writer.write(pack_frame(Hello(self._server, os.getpid())))
            self._reported = None
            self._news.set()
            self.connected = True
            await _first_of(self._listen(reader, writer), self._tell(writer), self._count(writer))
        except BadFrame as error:
            _log.error("reconnecting to the control process: %s", error)
        finally:
            self.connected = False
            writer.close()

    async def _listen(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (message := await read_frame(reader)) is not None:
            match message:
                case DesiredUpdate():
                    desired = await asyncio.to_thread(_desired, message)
                    self.fetched.set()
                    self._on_desired(desired)
                case Ask():
                    await _send(writer, answer(message.number, self._answers(message.query)))
                case SeriesStored() | DriftStored() | DriftScores():
                    self._stored(message)
                case Unknown():
                    _log.info("the control process sends '%.50s', unknown here", message.kind)

    async def _tell(self, writer: asyncio.StreamWriter) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            frame = self._reports()
            if frame == self._reported:
                continue
            self._reported = frame
            await _send(writer, frame)

    async def _count(self, writer: asyncio.StreamWriter) -> None:
        for number in itertools.count():
            for frame in self._counts(self._server, number % ALL_EVERY == 0):
                await _send(writer, frame)
                await asyncio.sleep(0)  # requests go first
            self._due.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(COUNT_S):
                    await self._due.wait()


def _desired(message: DesiredUpdate) -> DesiredState:
    """A large one takes longer than the loop should stand. Raises BadFrame."""
    try:
        return decode_state(message.state)
    except ValueError as error:
        raise BadFrame(f"a desired state that cannot be read: {error}") from error


async def _send(writer: asyncio.StreamWriter, message: Message) -> None:
    """Raises TimeoutError (an OSError) when the control process does not read."""
    writer.write(pack_frame(message))
    async with asyncio.timeout(WRITE_S):
        await writer.drain()


async def _first_of(*jobs: Any) -> None:
    """Run all until one ends, end the others, and raise what it raised."""
    tasks = [asyncio.ensure_future(job) for job in jobs]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()
