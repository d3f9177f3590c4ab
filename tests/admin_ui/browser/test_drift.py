"""The page of a model's drift in a real browser: watched, found, downloaded, by keyboard."""

import csv
import io
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from support.browser import chromium, log_in, page, violations
from support.console_seed import PASSWORD
from support.drift import of_version, send_until, watch, write_model
from support.yard import Yard, yard

pytestmark = pytest.mark.slow

PICTURES = os.environ.get("DRIFT_PICTURES", "")


@pytest.fixture(scope="module")
def drifted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    folder = tmp_path_factory.mktemp("drift-page")
    (folder / "models").mkdir()
    write_model(folder / "models", 0.0, 0.0)
    with yard(folder, drift_window_secs=1) as y:
        for name, role in {"iris": "admin", "vera": "viewer"}.items():
            y.api("POST", "/users", {"name": name, "role": role, "password": PASSWORD})
        watch(y)
        send_until(y, "drifted", 3.0)
        y.cli("drift", "watch", "score", "--window", "1h", "--min-sample", "200")
        y.wait_for(lambda: of_version(y, 2).get("requests", 0) > 1000, "the whole hour", 60)
        yield y


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened


def url(y: Yard) -> str:
    return f"http://127.0.0.1:{y.admin_port}"


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
def test_axe_finds_nothing_and_nothing_is_wider_than_the_page(
    drifted: Yard, browser: Browser, dark: bool, width: int
) -> None:
    with page(browser, (width, 900), dark=dark) as tab:
        log_in(tab, url(drifted), "iris", PASSWORD)
        tab.goto(url(drifted) + "/models/score/drift?version=2")
        expect(tab.locator(".drift svg").first).to_be_visible()
        tab.locator(".drift summary").first.click()
        if PICTURES:
            look = "dark" if dark else "light"
            tab.screenshot(path=Path(PICTURES) / f"drift-{width}-{look}.png", full_page=True)
        assert violations(tab) == []
        assert tab.evaluate("document.documentElement.scrollWidth") <= width


def test_the_most_drifted_feature_is_first_and_says_why(drifted: Yard, browser: Browser) -> None:
    with page(browser) as tab:
        log_in(tab, url(drifted), "vera", PASSWORD)
        tab.goto(url(drifted) + "/models/score/drift?version=2")
        first = tab.locator(".drift").first
        expect(first).to_contain_text("drifted")
        expect(first).to_contain_text("PSI")
        expect(tab.get_by_text("Choose reference …")).to_have_count(0)
        assert tab.locator(".drift").count() == 5


def test_data_can_be_read_and_fetched_by_keyboard(drifted: Yard, browser: Browser) -> None:
    with page(browser) as tab:
        log_in(tab, url(drifted), "iris", PASSWORD)
        tab.goto(url(drifted) + "/models/score/drift?version=2")
        tab.locator(".drift figure").first.focus()
        tab.keyboard.press("Tab")
        tab.keyboard.press("Enter")
        expect(tab.locator(".drift table").first).to_be_visible()
        with tab.expect_download() as fetched:
            tab.get_by_role("link", name="All features as CSV").press("Enter")
        rows = list(csv.reader(io.StringIO(Path(fetched.value.path()).read_text())))
        assert rows[0][:4] == ["role", "name", "state", "psi"]
        assert len(rows) == 6


def test_the_reference_is_chosen_and_the_watch_ended_in_the_console(
    drifted: Yard, browser: Browser
) -> None:
    with page(browser) as tab:
        log_in(tab, url(drifted), "iris", PASSWORD)
        tab.goto(url(drifted) + "/models/score")
        tab.get_by_role("link", name="Drift", exact=True).click()
        tab.get_by_role("link", name="Choose reference …").click()
        tab.get_by_label("Compare with").select_option("none")
        if PICTURES:
            tab.screenshot(path=Path(PICTURES) / "drift-form.png")
        tab.get_by_role("button", name="Compare with it").click()
        expect(tab.locator("dl.facts")).to_contain_text("no reference is chosen")
        tab.get_by_role("link", name="Change terms …").click()
        tab.get_by_label("Drifted above PSI").fill("much")
        tab.get_by_role("button", name="Save").click()
        expect(tab.locator(".wrong")).to_contain_text("'much' is not a number")
        tab.goto(url(drifted) + "/models/score/drift")
        tab.get_by_role("link", name="Stop watching …").click()
        tab.get_by_role("button", name="Stop watching").click()
        tab.goto(url(drifted) + "/models/score/drift")
        expect(tab.get_by_text("Drift of this model is not watched.")).to_be_visible()
        if PICTURES:
            tab.screenshot(path=Path(PICTURES) / "drift-none.png")
