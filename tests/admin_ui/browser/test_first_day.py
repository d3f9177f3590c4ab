"""From the printed link to a served model, in a real browser; and what a viewer cannot do."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from support.browser import PATIENCE_MS, log_in, page
from support.console_seed import PASSWORD, Night
from support.yard import Yard, write_identity, yard

pytestmark = pytest.mark.slow
expect.set_options(timeout=PATIENCE_MS)


def url_of(running: Yard) -> str:
    return f"http://127.0.0.1:{running.admin_port}"


def first_link(running: Yard) -> str:
    found = re.search(r"http://\S+/welcome#\S+", running.server.log())
    assert found
    return found[0]


def follow_link(tab: Page, running: Yard) -> None:
    tab.goto(first_link(running))
    assert "#" not in tab.url
    tab.fill("#name", "root")
    tab.fill("#password", PASSWORD)
    tab.press("#password", "Enter")
    tab.wait_for_url(f"{url_of(running)}/")


def make_repository(tab: Page, running: Yard) -> None:
    tab.click("text=Repositories")
    tab.click("a[href='#make']")
    tab.fill("input[name=name]", "models")
    tab.click("button:has-text('Create repository')")
    expect(tab.locator("h1")).to_have_text("models")


def make_token(tab: Page) -> str:
    tab.click("nav >> text=Access")
    tab.click("a[href='#make-token']")
    tab.fill("#f-access-tokens-name", "laptop")
    tab.click("button:has-text('Create token')")
    expect(tab.locator("h1")).to_have_text("New token")
    return tab.locator(".code pre").first.inner_text()


def working_copy(running: Yard) -> Path:
    folder = running.folder / "work"
    folder.mkdir()
    running.git(folder, "init", "-q", "-b", "main")
    running.git(folder, "remote", "add", "origin", running.url("models"))
    return folder


def test_from_the_first_link_to_a_moved_alias_without_a_reload(
    browser: Browser, tmp_path: Path
) -> None:
    with yard(tmp_path) as running, page(browser) as tab:
        follow_link(tab, running)
        make_repository(tab, running)
        running.token = make_token(tab)
        folder = working_copy(running)
        tab.click("nav >> text=Models")
        expect(tab.locator("#live-state")).to_contain_text("live")
        tab.evaluate("window.stayed = true")
        write_identity(folder, "digits", 1)
        running.commit(folder, "Digits")
        running.push(folder)
        row = tab.locator("tr", has_text="digits")
        expect(row.locator(".state.good").first).to_have_text(re.compile("ready"))
        write_identity(folder, "digits", 2)
        running.commit(folder, "Better digits")
        running.push(folder)
        expect(row).to_contain_text("v2")
        expect(tab.locator("#say")).not_to_be_empty()
        assert tab.evaluate("window.stayed") is True
        tab.click("text=digits")
        tab.click("a[href='#make']")
        tab.fill("#f-models-digits-aliases-alias", "champion")
        tab.select_option("#f-models-digits-aliases-version", "1")
        tab.click("button:has-text('Create alias')")
        tab.locator("tbody a.tag", has_text="@champion").click()
        tab.select_option("select[name=version]", "2")
        tab.click("button:has-text('Move the alias')")
        expect(tab.locator("#live")).to_contain_text("alias digits@champion moved")
        tab.click("nav >> text=Audit")
        expect(tab.locator("tr", has_text="alias.moved")).to_contain_text("root")


def test_a_restart_in_mid_view_is_caught_up_with(browser: Browser, tmp_path: Path) -> None:
    with yard(tmp_path) as running, page(browser) as tab:
        follow_link(tab, running)
        running.repository("models")
        tab.goto(url_of(running) + "/repositories")
        expect(tab.locator("#live-state")).to_contain_text("live")
        tab.evaluate("window.stayed = true")
        running.again()
        running.api("POST", "/repositories", {"name": "later"})
        expect(tab.locator("tr", has_text="later")).to_be_visible()
        expect(tab.locator("#live-state")).to_have_text("live")
        assert tab.evaluate("window.stayed") is True


def test_a_viewer_is_offered_nothing_that_changes(browser: Browser, seeded: Night) -> None:
    with page(browser) as tab:
        log_in(tab, seeded.url, "vera", PASSWORD)
        for path in ("/models/digits", "/models/digits/aliases/champion", "/repositories/vision"):
            tab.goto(seeded.url + path)
            assert tab.locator("main form[method=post]").count() == 0
        tab.goto(f"{seeded.url}/settings")
        expect(tab.locator("h1")).to_have_text("Not allowed")


def test_the_keyboard_alone_moves_an_alias(browser: Browser, seeded: Night) -> None:
    with page(browser) as tab:
        log_in(tab, seeded.url, "otto", PASSWORD)
        tab.goto(f"{seeded.url}/models/digits/aliases/champion")
        tab.keyboard.press("Tab")
        assert tab.evaluate("document.activeElement.textContent") == "Skip to the content"
        tab.keyboard.press("Enter")
        for _ in range(30):
            tab.keyboard.press("Tab")
            if tab.evaluate("document.activeElement.name") == "version":
                break
        tab.keyboard.type("3")
        tab.keyboard.press("Tab")
        tab.keyboard.press("Enter")
        tab.wait_for_url(f"{seeded.url}/models/digits")
        alias = seeded.yard.api("GET", "/models/digits/aliases/champion")[1]
        assert alias["version"] == 3


def test_times_are_told_in_the_readers_zone_too(browser: Browser, seeded: Night) -> None:
    with page(browser, zone="Asia/Tokyo") as tab:
        log_in(tab, seeded.url, "vera", PASSWORD)
        time = tab.locator("time").first
        assert time.inner_text().endswith("UTC")
        assert re.search(r"JST|GMT\+9", time.get_attribute("data-local") or "")


def test_a_filter_narrows_while_one_types_and_the_page_stays_live(
    browser: Browser, seeded: Night
) -> None:
    with page(browser) as tab:
        log_in(tab, seeded.url, "vera", PASSWORD)
        tab.goto(f"{seeded.url}/models")
        tab.locator("input[type=search]").press_sequentially("dig")
        expect(tab.locator("#live tbody tr")).to_have_count(1)
        assert "q=dig" in tab.url
        assert tab.evaluate("document.activeElement.type") == "search"
        expect(tab.locator("#live-state")).to_have_text("live")


def test_from_the_overview_to_what_fails_and_why(browser: Browser, seeded: Night) -> None:
    with page(browser) as tab:
        log_in(tab, seeded.url, "vera", PASSWORD)
        problem = tab.locator(".problems li", has_text="captions")
        expect(problem).to_contain_text("not an ONNX model")
        problem.locator("a").click()
        expect(tab.locator("#live")).to_contain_text("not an ONNX model")
