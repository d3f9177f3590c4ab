"""A screen that several tabs follow is looked at once for all that see it alike, and them alone."""

import asyncio
import inspect
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from starlette.requests import Request

from admin_ui.console import SCREENS
from admin_ui.live import LiveUpdateStream
from admin_ui.page_context import PageContext
from admin_ui.request_router import RequestRouter
from admin_ui.screens import Screen, ScreenContent
from admin_ui.services import (
    ConsoleServices,
    ControlApi,
    ControlApiError,
    ControlApiRequest,
    ControlApiResponse,
)
from admin_ui.templates import HERE
from admin_ui.watches import (
    ALL_SHARES,
    LEAST_PAUSE_S,
    MOST_PAUSE_S,
    SHARE,
    ScreenWatches,
    announcement,
    news,
    pause_s,
)
from control.access.scopes import Principal, Role
from control.events.event_notifier import EventNotifier

pytestmark = pytest.mark.anyio

SOON_S = 60.0


@dataclass
class Night:
    """A console whose events and screens are lists. `looks`: the visits a screen was loaded for."""

    happened: list[dict[str, Any]] = field(default_factory=list)
    looks: list[PageContext] = field(default_factory=list)
    asked: list[ControlApiRequest] = field(default_factory=list)
    shown: Callable[[], Any] = lambda: "as ever"
    next_look_s: float | None = None

    async def ask(
        self, request: Request, principal: Principal, asked: ControlApiRequest
    ) -> ControlApiResponse:
        self.asked.append(asked)
        after = int(asked.query["after"])
        return ControlApiResponse(
            {"items": [one for one in reversed(self.happened) if one["id"] > after]}
        )

    async def load(self, visit: PageContext) -> ScreenContent:
        self.looks.append(visit)
        return ScreenContent(self.shown(), next_look_s=self.next_look_s)

    def live(self, visit: PageContext, screen: Screen, shown: ScreenContent) -> str:
        return str(shown.twin)

    def screen(self, **facts: Any) -> Screen:
        usual = {"path": "/models", "title": "Models", "template": "", "live": ("load.*",)}
        return Screen(**{**usual, **facts}, load=self.load)

    def happens(self) -> None:
        number = len(self.happened) + 1
        row = {"id": number, "kind": "load.gone", "subject": "model:digits", "actor": "system"}
        self.happened.append({**row, "at": "2026-11-22T03:00:00.000Z", "data": {}})


@dataclass
class Console:
    """What a test has in hand: the watches, and visits to make them for."""

    night: Night
    services: ConsoleServices
    watches: ScreenWatches
    commits: EventNotifier

    def visit(self, name: str, role: Role = Role.VIEWER, at: str = "/models") -> PageContext:
        return PageContext(
            services=self.services,
            request=Request({"type": "http", "headers": []}),
            principal=Principal(f"user:{name}", role),
            path={},
            query={},
            at=at,
            token=f"{name}'s token",
        )

    def happens(self) -> None:
        self.night.happens()
        self.commits.committed()


@asynccontextmanager
async def console(night: Night) -> AsyncIterator[Console]:
    """With no pauses between two looks; every wait in the block ends within `SOON_S`."""
    commits = EventNotifier(lambda: len(night.happened))
    services = ConsoleServices(
        control=cast(ControlApi, night),
        newest=commits.newest,
        moved=commits.after,
        seen=lambda: commits.latest,
        rest=lambda _: asyncio.sleep(0),
        closed=lambda: commits.closed,
        snapshots=Path(),
        cookie="",
    )
    night.services = services  # type: ignore[attr-defined]
    try:
        async with asyncio.timeout(SOON_S):
            yield Console(night, services, ScreenWatches(cast(RequestRouter, night)), commits)
    finally:
        await commits.close()


async def test_tabs_that_see_the_same_are_looked_up_for_once() -> None:
    night = Night()
    screen = night.screen()
    async with console(night) as one:
        watch = one.watches.join(screen, one.visit("vera"), 0)
        assert one.watches.join(screen, one.visit("vito"), 0) is watch
        one.happens()
        first, second = await asyncio.gather(watch.after(0, SOON_S), watch.after(0, SOON_S))
        assert first is second
        assert first is not None
        assert (first.html, first.event) == ("as ever", 1)
        assert len(night.looks) == 1


async def test_who_may_do_other_things_looks_at_other_things() -> None:
    night = Night()
    shared, personal = night.screen(), night.screen(personal=True)
    async with console(night) as one:
        watch = one.watches.join(shared, one.visit("vera"), 0)
        assert one.watches.join(shared, one.visit("olga", Role.OPERATOR), 0) is not watch
        assert one.watches.join(shared, one.visit("vera", at="/models?q=x"), 0) is not watch
        own = one.watches.join(personal, one.visit("vera", at="/access"), 0)
        assert one.watches.join(personal, one.visit("vito", at="/access"), 0) is not own


async def test_what_is_shown_to_several_is_made_with_nobodys_token() -> None:
    night = Night()
    async with console(night) as one:
        for screen in (night.screen(), night.screen(personal=True)):
            watch = one.watches.join(screen, one.visit("vera"), 0)
            watch.ask()
            await watch.after(0, SOON_S)
            one.watches.leave(watch)
        assert [visit.token for visit in night.looks] == ["", "vera's token"]


async def test_a_part_that_is_as_it_was_keeps_its_number() -> None:
    night = Night()
    async with console(night) as one:
        watch = one.watches.join(night.screen(), one.visit("vera"), 0)
        one.happens()
        first = await watch.after(0, SOON_S)
        one.happens()
        second = await watch.after(1, SOON_S)
        assert first is not None
        assert second is not None
        assert (first.number, second.number, second.look) == (1, 1, 2)
        night.shown = lambda: "otherwise"
        one.happens()
        third = await watch.after(2, SOON_S)
        assert third is not None
        assert (third.number, third.html, third.event) == (3, "otherwise", 3)


async def test_nothing_is_looked_up_while_nothing_happens() -> None:
    night = Night()
    async with console(night) as one:
        watch = one.watches.join(night.screen(live=("load.*",)), one.visit("vera"), 0)
        assert await watch.after(0, 0.0) is None
        assert night.looks == []
        assert night.asked == []


async def test_a_screen_that_says_when_there_is_more_to_show_is_looked_up_then() -> None:
    night = Night(next_look_s=3600.0)
    screen = night.screen(live_every_s=0.001)
    async with console(night) as one:
        watch = one.watches.join(screen, one.visit("vera"), 0)
        assert await watch.after(0, SOON_S) is not None
        assert await watch.after(1, 0.05) is None
        one.happens()
        assert await watch.after(1, SOON_S) is not None
        night.next_look_s = None
        watch.ask()
        assert await watch.after(3, SOON_S) is not None


async def test_a_tab_whose_page_may_be_of_before_the_last_look_is_sent_another() -> None:
    night = Night()
    screen = night.screen()
    async with console(night) as one:
        watch = one.watches.join(screen, one.visit("vera"), 0)
        assert not watch.looked_lately()
        watch.ask()
        await watch.after(0, SOON_S)
        night.shown = lambda: "otherwise"
        tab = LiveUpdateStream(one.watches, screen, one.visit("vito"), 0, look=False)
        sent = [piece async for piece in _first(tab.pieces(), 2)]
        assert b"otherwise" in sent[1]
        tab.leave()


async def _first(pieces: AsyncIterator[bytes], number: int) -> AsyncIterator[bytes]:
    for _ in range(number):
        yield await anext(pieces)


async def test_the_last_tab_to_leave_ends_the_watch() -> None:
    night = Night()
    screen = night.screen()
    async with console(night) as one:
        watch = one.watches.join(screen, one.visit("vera"), 0)
        one.watches.join(screen, one.visit("vito"), 0)
        watch.ask()
        await watch.after(0, SOON_S)
        one.watches.leave(watch)
        assert one.watches.join(screen, one.visit("vera"), 0) is watch
        one.watches.leave(watch)
        one.watches.leave(watch)
        assert await watch.after(1, SOON_S) is None  # it has ended: nothing is waited for
        assert watch.ended
        assert one.watches.join(screen, one.visit("vera"), 0) is not watch


async def test_what_ends_a_watch_is_told_to_its_tabs_and_to_none_that_come_later() -> None:
    night = Night()
    screen = night.screen()

    def gone() -> Any:
        raise ControlApiError(503, "database_gone", "the database does not answer")

    night.shown = gone
    async with console(night) as one:
        watch = one.watches.join(screen, one.visit("vera"), 0)
        watch.ask()
        with pytest.raises(ControlApiError, match="does not answer"):
            await watch.after(0, SOON_S)
        night.shown = lambda: "as ever"
        later = one.watches.join(screen, one.visit("vera"), 0)
        later.ask()
        assert await later.after(0, SOON_S) is not None


async def test_a_thing_that_is_gone_is_a_part_without_anything() -> None:
    night = Night()

    def gone() -> Any:
        raise ControlApiError(404, "not_found", "there is no such model")

    night.shown = gone
    async with console(night) as one:
        watch = one.watches.join(night.screen(), one.visit("vera"), 0)
        watch.ask()
        part = await watch.after(0, SOON_S)
        assert part is not None
        assert part.html is None


async def test_news_are_asked_for_by_kind_and_by_what_they_are_about() -> None:
    night = Night()
    night.happens()
    night.happens()
    screen = night.screen(about=lambda path: f"model:{path['model']}")
    async with console(night) as one:
        visit = one.visit("vera")
        object.__setattr__(visit, "path", {"model": "digits"})
        assert [event["id"] for event in await news(visit, screen, 0, 2)] == [1, 2]
        assert await news(visit, screen, 2, 2) == []
        object.__setattr__(visit, "path", {"model": "a,b"})
        await news(visit, screen, 0, 2)
    first, second = night.asked
    assert first.query["subject"] == "model:digits"
    assert "subject" not in second.query


def test_many_events_are_told_in_few_words() -> None:
    night = Night()
    for _ in range(40):
        night.happens()
    assert announcement([]) == ""
    assert announcement(night.happened[:5]).endswith(". And 2 more.")
    assert announcement(night.happened).endswith(". And many more.")


def test_all_watches_together_cost_no_more_than_their_share() -> None:
    assert pause_s(0.001, 20) == LEAST_PAUSE_S
    assert 0.04 / pause_s(0.04) <= SHARE
    assert 20 * 0.04 / pause_s(0.04, 20) <= ALL_SHARES
    assert pause_s(1.0, 20) == MOST_PAUSE_S


@pytest.mark.parametrize("path", [one.path for one in SCREENS if one.live and not one.personal])
def test_what_several_look_at_knows_nobody(path: str) -> None:
    """A screen whose live part asks who looks, or has a form in it, says that it is personal."""
    screen = next(one for one in SCREENS if one.path == path)
    text = (HERE / "templates" / screen.template).read_text()
    live = text.partition("{% block live %}")[2].partition("{% block forms %}")[0]
    assert not re.search(r"parts\.(form|field|area|choose|confirm)\(", live)
    for source in (live, inspect.getsource(screen.load)):
        assert not re.search(r"visit\.(person|principal|token|request)\b", source)
