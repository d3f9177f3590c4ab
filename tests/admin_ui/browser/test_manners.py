"""Search, drawers and the theme, by keyboard alone, and free of violations."""

import re

import pytest
from playwright.sync_api import Browser, expect

from support.browser import log_in, page, violations
from support.console_seed import PASSWORD, Night

pytestmark = pytest.mark.slow


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
