"""Every screen by keyboard alone: Tab reaches all that can be used, and drawers open and close."""

import pytest
from playwright.sync_api import Browser, expect

from support.browser import log_in, page
from support.console_seed import PASSWORD, Night, paths
from support.series_seed import seed_series

pytestmark = pytest.mark.slow

USABLE = """
() => {
  const fields = "button, input:not([type=hidden]), select, textarea";
  const all = `a[href], summary, [tabindex='0'], ${fields}`;
  const hidden = (one) => one.disabled || !one.checkVisibility() || one.closest("[inert]");
  window.usable = [...document.querySelectorAll(all)].filter((one) => !hidden(one));
  window.reached = new Set();
  document.addEventListener("focusin", (event) => window.reached.add(event.target));
  document.activeElement.blur();
  return window.usable.length;
}
"""
MISSED = """
() => window.usable
  .filter((one) => one.isConnected && one.checkVisibility() && !window.reached.has(one))
  .map((one) => one.outerHTML.slice(0, 120))
"""


def test_tab_reaches_all_that_can_be_used(browser: Browser, seeded: Night) -> None:
    seed_series(seeded.yard)
    missed: dict[str, list[str]] = {}
    with page(browser) as tab:
        log_in(tab, seeded.url, "iris", PASSWORD)
        for name, path in paths(seeded.seeded).items():
            tab.goto(seeded.url + path)
            for _ in range(tab.evaluate(USABLE) + 1):
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
