"""The one stream of a tab: when something a screen shows has changed, its live part rendered anew.

Nothing is queued per tab: the events' table says what was missed, and what is sent is always how
things are now.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from hashlib import sha256
from time import monotonic
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from admin_ui.frame import Frame
from admin_ui.headers import PRIVATE
from admin_ui.screens import Screen
from admin_ui.services import Refused
from admin_ui.visit import Visit
from admin_ui.words import words

MOST_STREAMS = 200
LEAST_PAUSE_S = 0.5
MOST_PAUSE_S = 10.0
SHARE = 0.02
"""Of a core, at most, for one tab."""

SLOWEST_S = 30.0
RETRY_MS = 2000
SAY_EVERY_S = 5.0
"""Between two announcements to who listens instead of looking."""

_SAID_AT_ONCE = 3
_NEVER = 2**62
_HEADERS = {**PRIVATE, "X-Accel-Buffering": "no"}


def live_route(frame: Frame) -> BaseRoute:
    """/live?at=PATH&after=EVENT; Last-Event-ID counts before `after`."""
    open_streams: set[object] = set()

    async def live(request: Request) -> Response:
        at, after = request.query_params.get("at", ""), _event_id(request)
        found = frame.find(at)
        if found is None:
            raise Refused(404, "not_found", f"no screen is at {at[:200]}", "at")
        if len(open_streams) >= MOST_STREAMS:
            raise Refused(429, "too_many", "too many tabs follow already", headers=_later())
        screen, facts = found
        visit = await frame.visit(request, **facts)
        mark = object()
        open_streams.add(mark)
        stream = Stream(frame, screen, visit, after)
        return LiveResponse(stream, lambda: open_streams.discard(mark))

    return Route("/live", frame.guarded(live), methods=["GET"])


def pause_s(took_s: float) -> float:
    """How long to wait after a piece that took so long to make."""
    return min(MOST_PAUSE_S, max(LEAST_PAUSE_S, took_s / SHARE))


@dataclass(frozen=True, slots=True)
class News:
    """What has happened since the last look. `reached`: up to which event that is all."""

    events: list[Any]
    reached: int


class Stream:
    """The pieces that one tab is sent, beginning with what came later than the event `after`."""

    def __init__(self, frame: Frame, screen: Screen, visit: Visit, after: int) -> None:
        self._frame = frame
        self._screen = screen
        self._visit = visit
        self._reached = after
        self._sent = b""
        self._said_at = 0.0
        self._unsaid: list[Any] = []

    async def pieces(self) -> AsyncIterator[bytes]:
        """Until the server stops or the session is over."""
        services = self._frame.services
        yield b"retry: %d\nid: %d\n: hello\n\n" % (RETRY_MS, self._reached)
        beat = monotonic() + services.heartbeat_s
        due = monotonic() + self._screen.live_every_s
        while not services.closed():
            if monotonic() >= beat:
                if not await self._still():
                    yield b"event: over\ndata: {}\n\n"
                    return
                beat = monotonic() + services.heartbeat_s
                yield b"id: %d\n: still here\n\n" % self._reached
            began = monotonic()
            news = await self._news()
            regular = bool(self._screen.live_every_s) and began >= due
            if news.events or regular:
                due = began + self._screen.live_every_s
                self._unsaid += news.events
                if piece := await self._piece():
                    yield piece
            await self._rest(pause_s(monotonic() - began))
            await services.moved(self._reached, self._until(beat, due))

    async def _rest(self, seconds: float) -> None:
        """A pause that only the server's end cuts short."""
        await self._frame.services.moved(_NEVER, seconds)

    def _until(self, beat: float, due: float) -> float:
        ends = min(beat, due) if self._screen.live_every_s else beat
        return max(0.0, ends - monotonic())

    async def _news(self) -> News:
        newest = await self._frame.services.newest()
        if newest == self._reached:
            return News([], newest)
        self._reached, since = max(newest, self._reached), min(self._reached, newest)
        if not self._screen.live:
            return News([], newest)
        query = {"after": str(since), "kind": ",".join(self._screen.live)}
        found = await self._visit.get("/events", query)
        return News(found["items"], newest)

    async def _piece(self) -> bytes:
        """The live part, b"" when it is as it was sent last."""
        try:
            shown = await self._screen.load(self._visit)
            part = self._frame.live(self._visit, self._screen, shown)
        except Refused as refused:
            if refused.status == 404:
                return b"event: reload\ndata: {}\n\n"
            raise
        digest = sha256(part.encode()).digest()
        if digest == self._sent:
            return b""
        self._sent = digest
        told = orjson.dumps({"html": part, "say": self._say()})
        return b"id: %d\nevent: live\ndata: %s\n\n" % (self._reached, told)

    def _say(self) -> str:
        now = monotonic()
        if not self._unsaid or now < self._said_at + SAY_EVERY_S:
            return ""
        self._said_at, unsaid = now, self._unsaid
        self._unsaid = []
        more = len(unsaid) - _SAID_AT_ONCE
        told = ". ".join(words(event) for event in unsaid[-_SAID_AT_ONCE:])
        return f"{told}. And {more} more." if more > 0 else f"{told}."

    async def _still(self) -> bool:
        try:
            principal = await self._frame.services.control.known(self._visit.request)
        except Refused as refused:
            return refused.status >= 500  # the database is gone, not the session
        self._visit = replace(self._visit, principal=principal)
        return True


class LiveResponse(Response):
    """A stream until the tab goes, takes nothing for SLOWEST_S, or the control side refuses."""

    def __init__(self, stream: Stream, ended: Any) -> None:
        super().__init__(None, 200, _HEADERS, "text/event-stream")
        del self.headers["content-length"]
        self._stream = stream
        self._ended = ended

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        pump = asyncio.create_task(self._pump(send))
        gone = asyncio.create_task(_until_gone(receive))
        try:
            await asyncio.wait((pump, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            pump.cancel()
            gone.cancel()
            result, _ = await asyncio.gather(pump, gone, return_exceptions=True)
            self._ended()
        if isinstance(result, Exception) and not isinstance(result, TimeoutError):
            raise result

    async def _pump(self, send: Send) -> None:
        headers = self.raw_headers
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        try:
            async for piece in self._stream.pieces():
                async with asyncio.timeout(SLOWEST_S):
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
        except Refused:
            pass  # the tab comes back by itself, and is told then
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def _event_id(request: Request) -> int:
    given = request.headers.get("last-event-id") or request.query_params.get("after", "0")
    if not (given.isascii() and given.isdigit() and len(given) < 19):
        raise Refused(400, "malformed", f"'{given[:40]}' is no event's id", "after")
    return int(given)


def _later() -> dict[str, str]:
    return {"Retry-After": "5"}


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
