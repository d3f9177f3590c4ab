"""Events over SSE: read from the table, so that whoever lost the thread takes it up again.

Nothing is queued per reader: the table is the queue, and a reader that takes nothing for a while is
cut off and comes back with Last-Event-ID.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic

import msgspec
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from control.errors import ControlError
from control.events.event_notifier import EventNotifier
from control.views import to_json

HEARTBEAT_S = 15.0
SLOWEST_S = 30.0
"""How long one piece may wait for a reader that takes nothing."""

RETRY_MS = 2000
_HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
)


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """An event as the stream needs it."""

    id: int
    kind: str
    document: msgspec.Struct


@dataclass(frozen=True, slots=True)
class EventSource:
    """`read` gives the next events after an id, a bounded few, and up to which id that is all;
    `still` whether the reader may go on."""

    read: Callable[[int], Awaitable[tuple[Sequence[StreamEvent], int]]]
    still: Callable[[], Awaitable[bool]]
    commits: EventNotifier
    heartbeat_s: float = HEARTBEAT_S
    slowest_s: float = SLOWEST_S


class EventStream(Response):
    """The events after `event_id`, until the reader goes, may not go on, or is too slow.

    `opening` is sent first; `ended` is called once it is over.
    """

    def __init__(
        self, source: EventSource, event_id: int, opening: bytes, ended: Callable[[], None]
    ) -> None:
        self.status_code = 200
        self.background = None
        self._source = source
        self._event_id = event_id
        self._opening = opening
        self._ended = ended

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        pump = asyncio.create_task(self._pump(send))
        gone = asyncio.create_task(_until_gone(receive))
        try:
            await asyncio.wait((pump, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (pump, gone):
                task.cancel()
            result, _ = await asyncio.gather(pump, gone, return_exceptions=True)
            self._ended()
        if isinstance(result, Exception) and not isinstance(result, TimeoutError):
            raise result

    async def _pump(self, send: Send) -> None:
        start: Message = {"type": "http.response.start", "status": 200, "headers": [*_HEADERS]}
        await send(start)
        with suppress(ControlError):  # the database went; the reader comes back later
            async for piece in self._pieces():
                async with asyncio.timeout(self._source.slowest_s):
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _pieces(self) -> AsyncIterator[bytes]:
        yield b"retry: %d\nid: %d\n\n" % (RETRY_MS, self._event_id) + self._opening
        source, reached = self._source, self._event_id
        beat = monotonic() + source.heartbeat_s
        while not source.commits.closed:
            events, reached = await source.read(reached)
            if events:
                yield b"".join(map(frame, events))
            if monotonic() >= beat:
                if not await source.still():
                    return
                beat = monotonic() + source.heartbeat_s
                yield b": still here\n\n"
            elif not events:
                await source.commits.after(reached, max(0.0, beat - monotonic()))


def frame(event: StreamEvent) -> bytes:
    """`id:`, `event:` and one line of JSON."""
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (
        event.id,
        event.kind.encode(),
        to_json(event.document),
    )


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
