"""The one stream of a tab: when something a screen shows has changed, its live part rendered anew.

Nothing is queued per tab: the events' table says what was missed, and what is sent is always how
things are now. Looking and rendering is `admin_ui.watches`, once for all tabs that see the same.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from time import monotonic
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from admin_ui.headers import PRIVATE
from admin_ui.page_context import PageContext
from admin_ui.request_router import RequestRouter
from admin_ui.screens import Screen
from admin_ui.services import ControlApiError
from admin_ui.watches import LiveFragment, ScreenWatch, ScreenWatches, alike, announcement, news

MOST_STREAMS = 200
SLOWEST_S = 30.0
RETRY_MS = 2000

_HEADERS = {**PRIVATE, "X-Accel-Buffering": "no"}


def live_route(router: RequestRouter) -> BaseRoute:
    """/live?at=PATH&after=EVENT; Last-Event-ID counts before `after`. With look=1 the live part is
    looked up at once: the page was not followed for a while."""
    open_streams: set[LiveUpdateStream] = set()
    watches = ScreenWatches(router)

    async def live(request: Request) -> Response:
        at, after = request.query_params.get("at", ""), _event_id(request)
        found = router.find(at)
        if found is None:
            raise ControlApiError(404, "not_found", f"no screen is at {at[:200]}", "at")
        if len(open_streams) >= MOST_STREAMS:
            raise ControlApiError(
                429, "too_many", "too many tabs follow events already", headers=_later()
            )
        screen, facts = found
        context = await router.page_context(request, **facts)
        stream = LiveUpdateStream(watches, screen, context, after, "look" in request.query_params)
        open_streams.add(stream)

        def ended() -> None:
            open_streams.discard(stream)
            stream.leave()

        return LiveResponse(stream, ended)

    return Route("/live", router.guarded(live), methods=["GET"])


class LiveUpdateStream:
    """The pieces that one tab is sent, beginning with what came later than the event `after`, or
    with how things are now where it is to `look`."""

    def __init__(
        self, watches: ScreenWatches, screen: Screen, context: PageContext, after: int, look: bool
    ) -> None:
        self._watches = watches
        self._services = watches.router.services
        self._screen = screen
        self._context = context
        self._reached = after
        self._is_old = look
        self._watch: ScreenWatch | None = None
        self._look = 0
        self._number = 0
        self._missed: list[Any] = []

    async def pieces(self) -> AsyncIterator[bytes]:
        """Until the server stops or the session is over. Raises ControlApiError."""
        services = self._services
        yield b"retry: %d\nid: %d\n: hello\n\n" % (RETRY_MS, self._reached)
        beat = monotonic() + services.heartbeat_s
        watch = await self._begin()
        while not services.closed() and not watch.ended:
            part = await watch.after(self._look, max(0.0, beat - monotonic()))
            if part is not None and (piece := self._piece(part)):
                yield piece
            if monotonic() >= beat:
                if not await self._still():
                    yield b"event: over\ndata: {}\n\n"
                    return
                watch = self._as_allowed(watch)
                beat = monotonic() + services.heartbeat_s
                yield b"id: %d\n: still here\n\n" % self._caught_up(watch)

    def leave(self) -> None:
        """The tab has gone."""
        watch, self._watch = self._watch, None
        if watch is not None:
            self._watches.leave(watch)

    async def _begin(self) -> ScreenWatch:
        """Join those that look at the same; what this tab has missed is looked up for it."""
        newest = await self._services.newest()
        self._missed = await news(self._context, self._screen, self._reached, newest)
        watch = self._join(newest)
        if self._missed or self._is_old:
            watch.ask()
        return watch

    def _join(self, newest: int) -> ScreenWatch:
        watch = self._watch = self._watches.join(self._screen, self._context, newest)
        self._look = watch.begun  # what is being looked up already may be older than the page
        if watch.looked_lately():  # or newer
            watch.ask()
        return watch

    def _piece(self, part: LiveFragment) -> bytes:
        """The live part, b"" when it is as it was sent last."""
        self._look, self._reached = part.look, part.event
        missed, self._missed = self._missed, []
        if part.number == self._number:
            return b""
        self._number = part.number
        if part.html is None:
            return b"event: reload\ndata: {}\n\n"
        sent = orjson.dumps({"html": part.html, "say": part.say or announcement(missed)})
        return b"id: %d\nevent: live\ndata: %s\n\n" % (self._reached, sent)

    def _caught_up(self, watch: ScreenWatch) -> int:
        """Up to which event this tab has all there is to show."""
        if watch.part.look <= self._look and not self._missed:
            self._reached = max(self._reached, watch.part.event)
        return self._reached

    async def _still(self) -> bool:
        try:
            principal = await self._services.control.identify(self._context.request)
        except ControlApiError as refused:
            return refused.status >= 500  # the database is gone, not the session
        self._context = replace(self._context, principal=principal)
        return True

    def _as_allowed(self, watch: ScreenWatch) -> ScreenWatch:
        """Whoever may do other things by now sees other things."""
        if watch.key == alike(self._screen, self._context):
            return watch
        self.leave()
        joined = self._join(watch.part.event)
        joined.ask()
        return joined


class LiveResponse(Response):
    """A stream until the tab goes, takes nothing for SLOWEST_S, or the control side refuses."""

    def __init__(self, stream: LiveUpdateStream, ended: Callable[[], None]) -> None:
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
        except ControlApiError:
            pass  # the tab comes back by itself, and is told then
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def _event_id(request: Request) -> int:
    given = request.headers.get("last-event-id") or request.query_params.get("after", "0")
    if not (given.isascii() and given.isdigit() and len(given) < 19):
        raise ControlApiError(400, "malformed", f"'{given[:40]}' is no event's id", "after")
    return int(given)


def _later() -> dict[str, str]:
    return {"Retry-After": "5"}


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
