"""axe-core on every screen, light and dark, wide and narrow; nothing wider than the window."""

import pytest
from playwright.sync_api import Browser

from admin_ui.console import SCREENS
from support.browser import NARROW, WIDE, log_in, page, violations
from support.console_seed import BEFORE, PASSWORD, Night, paths

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", [NARROW, WIDE], ids=["narrow", "wide"])
def test_axe_finds_nothing_and_nothing_overflows(
    browser: Browser, seeded: Night, size: tuple[int, int], dark: bool
) -> None:
    wrong: dict[str, list[str]] = {}
    with page(browser, size, dark) as tab:
        for name, path in BEFORE.items():
            tab.goto(seeded.url + path)
            wrong[name] = violations(tab)
        log_in(tab, seeded.url, "iris", PASSWORD)
        for name, path in paths(seeded.seeded).items():
            tab.goto(seeded.url + path)
            wrong[name] = violations(tab)
            if tab.evaluate("document.documentElement.scrollWidth > innerWidth"):
                wrong[name].append("the page is wider than the window")
    assert not {name: found for name, found in wrong.items() if found}


def test_every_screen_is_looked_at(seeded: Night) -> None:
    from starlette.routing import Match, Route

    looked = [path.partition("?")[0] for path in paths(seeded.seeded).values()]
    for screen in SCREENS:
        route = Route(screen.path, lambda request: None)
        scopes = ({"type": "http", "path": path, "method": "GET"} for path in looked)
        assert any(route.matches(scope)[0] == Match.FULL for scope in scopes), screen.path
