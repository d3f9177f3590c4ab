"""Every screen by axe-core and by keyboard alone, light and dark, wide and narrow; search, drawers
and the theme. One server and one Chromium for all of it.
"""

import re

import pytest
from playwright.sync_api import Browser, expect

from admin_ui.console import SCREENS
from support.browser import NARROW, WIDE, log_in, page, violations
from support.console_seed import BEFORE, PASSWORD, Night, paths
from support.series_seed import seed_series

pytestmark = pytest.mark.slow


# A size shows the layout, a theme the colours: two of the four runs see both of each.
@pytest.mark.parametrize(
    ("size", "dark"), [(NARROW, False), (WIDE, True)], ids=["narrow and light", "wide and dark"]
)
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


USABLE = """
(root) => {
  const fields = "button, input:not([type=hidden]), select, textarea";
  const all = `a[href], summary, [tabindex='0'], ${fields}`;
  const hidden = (one) => one.disabled || !one.checkVisibility() || one.closest("[inert]");
  const within = document.querySelector(root);
  window.usable = [...within.querySelectorAll(all)].filter((one) => !hidden(one));
  window.reached = new Set();
  document.addEventListener("focusin", (event) => window.reached.add(event.target));
  document.activeElement.blur();
  within.focus();
  return window.usable.length;
}
"""
MISSED = """
() => window.usable
  .filter((one) => one.isConnected && one.checkVisibility() && !window.reached.has(one))
  .map((one) => one.outerHTML.slice(0, 120))
"""


def test_tab_reaches_all_that_can_be_used(browser: Browser, seeded: Night) -> None:
    """The menu, which all screens have, on the first of them alone."""
    seed_series(seeded.yard)
    missed: dict[str, list[str]] = {}
    with page(browser) as tab:
        log_in(tab, seeded.url, "iris", PASSWORD)
        for name, path in paths(seeded.seeded).items():
            tab.goto(seeded.url + path)
            for _ in range(tab.evaluate(USABLE, "main" if missed else "body") + 1):
                tab.keyboard.press("Tab")
            missed[name] = tab.evaluate(MISSED)
    assert not {name: found for name, found in missed.items() if found}


def test_drawers_are_opened_and_closed_by_keyboard(browser: Browser, seeded: Night) -> None:
    opened = 0
    with page(browser) as tab:
        log_in(tab, seeded.url, "iris", PASSWORD)
        for path in paths(seeded.seeded).values():
            tab.goto(seeded.url + path)
            for one in tab.locator(".actions a.button[href^='#']").all():
                one.focus()
                tab.keyboard.press("Enter")
                drawer = tab.locator("dialog.drawer[open]")
                expect(drawer).to_have_count(1)
                assert tab.evaluate("document.activeElement.closest('dialog[open]') !== null")
                tab.keyboard.press("Escape")
                expect(drawer).to_have_count(0)
                opened += 1
    assert opened > 10


def test_ctrl_k_finds_a_model_and_goes_there(browser: Browser, seeded: Night) -> None:
    with page(browser) as tab:
        log_in(tab, seeded.url, "iris", PASSWORD)
        tab.keyboard.press("Control+k")
        tab.keyboard.type("digits")
        expect(tab.locator("dialog.search [role=option]").first).to_contain_text("digits")
        assert not violations(tab)
        tab.keyboard.press("Enter")
        tab.wait_for_url(re.compile("/(models|routes)/digits$"))


def test_ctrl_k_finds_pages_and_settings_and_escape_leaves(browser: Browser, seeded: Night) -> None:
    with page(browser) as tab:
        log_in(tab, seeded.url, "iris", PASSWORD)
        tab.keyboard.press("Control+k")
        tab.keyboard.type("series")
        options = tab.locator("dialog.search [role=option]")
        expect(options.filter(has_text="series_limit")).to_have_count(1)
        tab.keyboard.press("ArrowDown")
        chosen = tab.locator("dialog.search [aria-selected=true]")
        expect(chosen).to_have_attribute("id", "found-1")
        tab.keyboard.press("Escape")
        expect(tab.locator("dialog.search")).not_to_be_visible()


def test_a_form_opens_beside_what_it_changes_and_gives_the_focus_back(
    browser: Browser, seeded: Night
) -> None:
    with page(browser) as tab:
        log_in(tab, seeded.url, "otto", PASSWORD)
        tab.goto(f"{seeded.url}/routes/shop")
        expect(tab.locator("input[name='weight.next']")).not_to_be_visible()
        opener = tab.locator("a[href='#weigh']")
        opener.focus()
        tab.keyboard.press("Enter")
        expect(tab.locator("input[name='weight.next']")).to_be_visible()
        assert not violations(tab)
        tab.keyboard.press("Escape")
        expect(opener).to_be_focused()


def test_what_was_refused_is_open_with_its_reason(browser: Browser, seeded: Night) -> None:
    with page(browser) as tab:
        log_in(tab, seeded.url, "otto", PASSWORD)
        tab.goto(f"{seeded.url}/routes")
        tab.click("a[href='#make']")
        tab.fill("#f-routes-name", "shop")
        tab.select_option("#f-routes-target", index=1)
        tab.click("button:has-text('Create route')")
        expect(tab.locator("dialog.drawer .wrong")).to_be_visible()


def test_the_theme_is_chosen_and_stays(browser: Browser, seeded: Night) -> None:
    with page(browser) as tab:
        log_in(tab, seeded.url, "vera", PASSWORD)
        light = tab.evaluate("getComputedStyle(document.documentElement).backgroundColor")
        tab.click(".theme button:has-text('Dark')")
        expect(tab.locator("html")).to_have_attribute("data-theme", "dark")
        dark = tab.evaluate("getComputedStyle(document.documentElement).backgroundColor")
        assert dark != light
        tab.goto(f"{seeded.url}/models")
        assert not violations(tab)
