"""Screens that tabs follow: each looked up and rendered once for all tabs that see it alike.

A watch looks again when an event its screen shows has come, rests then as long as the look was
dear, and keeps nothing but the last part. A tab takes what is newer than what it has.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf
from time import monotonic, process_time
from typing import Any

from admin_ui.event_text import words
from admin_ui.page_context import PageContext
from admin_ui.request_router import RequestRouter
from admin_ui.screens import Screen
from admin_ui.services import ControlApiError

LEAST_PAUSE_S = 1.0
MOST_PAUSE_S = 10.0
SHARE = 0.01
"""Of a core, at most, for the looks of one watch: of the 2 % a tab may cost, the other half is for
finding out that there is news, and for sending it."""

ALL_SHARES = 0.1
"""Of a core, at most, for all watches together, as long as none would rest MOST_PAUSE_S."""

SPREAD_S = 5.0
"""Over which looks are spread that charts want at the same moment."""

PAGE_S = 5.0
"""Longest between the look-up of a page and its tab's joining the watch, nearly always."""

SAY_EVERY_S = 5.0
"""Between two announcements to who listens instead of looking."""

_SAID_AT_ONCE, _MOST_UNSAID = 3, 20
_LONGEST_NAME = 200


def pause_s(cost_s: float, watches: int = 1) -> float:
    """How long a watch rests after a look that cost so much CPU time, beside others. Pure."""
    share = min(SHARE, ALL_SHARES / watches)
    return min(MOST_PAUSE_S, max(LEAST_PAUSE_S, cost_s / share))


@dataclass(frozen=True, slots=True)
class LiveFragment:
    """A screen's live part. `look`: the watch's how-manieth look it is of; `number`: that of the
    look that found it so first; `html`: None when the screen's thing is gone; `event`: all events
    up to it are in it; `say`: what happened, in words."""

    look: int = 0
    number: int = 0
    html: str | None = None
    event: int = 0
    say: str = ""


class ScreenWatch:
    """One screen, for whoever sees it alike; its `run` is a task of its own."""

    def __init__(
        self, watches: "ScreenWatches", screen: Screen, context: PageContext, newest: int
    ) -> None:
        self.key = alike(screen, context)
        self.tabs = 0
        self.part = LiveFragment(event=newest)
        self.begun = 0
        self._began_at = -inf
        self.ended = False
        self._watches = watches
        self._services = watches.router.services
        self._screen = screen
        self._context = context
        self._asked = asyncio.Event()
        self._moved = asyncio.Event()
        self._failure: Exception | None = None
        self._unsaid: list[Any] = []
        self._said_at = 0.0
        self._next_look_s: float | None = None

    def ask(self) -> None:
        """Look, even if nothing happens from now on: a tab has missed something."""
        self._asked.set()

    def looked_lately(self) -> bool:
        """A look is under way, or began so lately that it may be later than the page of a tab that
        joins now, or earlier."""
        return self.begun > self.part.look or monotonic() < self._began_at + PAGE_S

    async def after(self, look: int, timeout_s: float) -> LiveFragment | None:
        """The part of a look later than number `look`, waiting so long for one; None without.

        Raises what ended the watch.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self.part.look <= look and not self.ended:
                    await self._moved.wait()
        if self._failure is not None:
            raise self._failure
        return self.part if self.part.look > look else None

    async def run(self) -> None:
        """Until cancelled, refused, or the server stops."""
        try:
            await self._follow()
        except Exception as error:  # noqa: BLE001 - the tabs' streams raise it
            self._failure = error
        finally:
            self.ended = True
            self._watches.forget(self)
            self._wake()

    async def _follow(self) -> None:
        every_s = self._screen.live_every_s
        due = monotonic() + every_s
        while not self._services.closed():
            await self._until_moved(max(0.0, due - monotonic()) if every_s else MOST_PAUSE_S)
            began, spent = monotonic(), process_time()
            newest = max(self._services.seen(), self.part.event)
            events = await news(self._context, self._screen, self.part.event, newest)
            if events or self._asked.is_set() or (every_s and began >= due):
                self._asked.clear()
                await self._look(events, newest)
                due = began + self._pause_s(every_s)
            else:
                self.part = replace(self.part, event=newest)
            # both count what others did meanwhile, too
            cost_s = min(monotonic() - began, process_time() - spent)
            await self._services.rest(pause_s(cost_s, self._watches.number))

    def _pause_s(self, every_s: float) -> float:
        """Until the next look that no event asks for."""
        if self._next_look_s is None:
            return every_s
        return self._next_look_s + hash(self.key) % 1000 / 1000 * SPREAD_S

    async def _until_moved(self, seconds: float) -> None:
        """Until there is a later event, somebody asks, or `seconds` are over."""
        moved = asyncio.ensure_future(self._services.moved(self.part.event, seconds))
        asked = asyncio.ensure_future(self._asked.wait())
        try:
            await asyncio.wait((moved, asked), return_when=asyncio.FIRST_COMPLETED)
        finally:
            moved.cancel()
            asked.cancel()
            await asyncio.gather(moved, asked, return_exceptions=True)

    async def _look(self, events: Sequence[Any], newest: int) -> None:
        self.begun += 1
        self._began_at = monotonic()
        html: str | None = None
        try:
            shown = await self._screen.load(self._context)
            html = self._watches.router.live(self._context, self._screen, shown)
            self._next_look_s = shown.next_look_s
        except ControlApiError as refused:
            if refused.status != 404:
                raise
        self._unsaid = [*self._unsaid, *events][-_MOST_UNSAID:]
        old = self.part
        if old.number and old.html == html:
            self.part = replace(old, look=self.begun, event=newest)
        else:
            self.part = LiveFragment(self.begun, self.begun, html, newest, self._say())
        self._wake()

    def _say(self) -> str:
        now = monotonic()
        if not self._unsaid or now < self._said_at + SAY_EVERY_S:
            return ""
        self._said_at, unsaid = now, self._unsaid
        self._unsaid = []
        return announcement(unsaid)

    def _wake(self) -> None:
        self._moved.set()
        self._moved = asyncio.Event()


class ScreenWatches:
    """The watches that run, by screen and by what whoever looks may see; on the loop."""

    def __init__(self, router: RequestRouter) -> None:
        self.router = router
        self._running: dict[object, ScreenWatch] = {}
        self._tasks: dict[ScreenWatch, asyncio.Task[None]] = {}

    @property
    def number(self) -> int:
        return max(1, len(self._tasks))

    def join(self, screen: Screen, context: PageContext, newest: int) -> ScreenWatch:
        """The watch for a tab, which leaves it once. `newest`: the newest event there is."""
        key = alike(screen, context)
        watch = self._running.get(key)
        if watch is None:
            # what is shown to several has nobody's token in it, whatever a template does
            seen = context if screen.personal else replace(context, token="")
            watch = self._running[key] = ScreenWatch(self, screen, seen, newest)
            self._tasks[watch] = asyncio.create_task(watch.run())
        watch.tabs += 1
        return watch

    def leave(self, watch: ScreenWatch) -> None:
        """The last one's leaving ends it."""
        watch.tabs -= 1
        task = self._tasks.get(watch)
        if not watch.tabs and task is not None:
            task.cancel()
            self.forget(watch)

    def forget(self, watch: ScreenWatch) -> None:
        """Whoever comes from now on gets another one."""
        self._tasks.pop(watch, None)
        self._running = {key: one for key, one in self._running.items() if one is not watch}


def alike(screen: Screen, context: PageContext) -> object:
    """Equal for contexts that are shown the same: a screen that is not personal shows everybody who
    may do the same things the same."""
    who = context.principal
    mine = (who, context.token) if screen.personal else (who.role, who.scopes)
    return (context.at, mine)


async def news(context: PageContext, screen: Screen, after: int, newest: int) -> list[Any]:
    """The events after one that `screen` shows, oldest first, the last few of many.

    Raises ControlApiError.

    An `after` that is later than the newest is of a time before a restore.
    """
    if after == newest or not screen.live:
        return []
    query = {
        "after": str(min(after, newest)),
        "kind": ",".join(screen.live),
        "newest": "true",
        "limit": str(_MOST_UNSAID),
    }
    if screen.about is not None and all(map(_can_be_asked_for, context.path.values())):
        query["subject"] = screen.about(context.path)
    found = await context.get("/events", query)
    return list(reversed(found["items"]))


def _can_be_asked_for(name: str) -> bool:
    """Not what the query would split, or a subject cuts off."""
    return "," not in name and len(name) <= _LONGEST_NAME


def announcement(events: Sequence[Any]) -> str:
    """What happened, in words; the last few, and how many more as long as that can be said."""
    if not events:
        return ""
    more = len(events) - _SAID_AT_ONCE
    said = ". ".join(words(event) for event in events[-_SAID_AT_ONCE:])
    if len(events) >= _MOST_UNSAID:
        return f"{said}. And many more."
    return f"{said}. And {more} more." if more > 0 else f"{said}."
