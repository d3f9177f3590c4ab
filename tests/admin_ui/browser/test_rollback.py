"""An operator rolls a model back in a real browser: three clicks from the overview."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from support.browser import PATIENCE_MS, log_in, page
from support.console_seed import PASSWORD, PEOPLE
from support.yard import Yard, write_identity, yard

pytestmark = pytest.mark.slow
expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="module")
def running(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    with yard(tmp_path_factory.mktemp("rollback")) as y:
        folder = y.repository("vision")
        for number in (1, 2):
            write_identity(folder, "digits", number)
            y.commit(folder, f"Digits {number}")
            y.push(folder)
            y.wait_versions("digits", number)
        for name, role in PEOPLE.items():
            y.api("POST", "/users", {"name": name, "role": role, "password": PASSWORD})
        yield y


def test_three_clicks_bring_the_last_healthy_version_back(
    browser: Browser, running: Yard, tmp_path_factory: pytest.TempPathFactory
) -> None:
    url = f"http://127.0.0.1:{running.admin_port}"
    shots = tmp_path_factory.mktemp("shots")
    with page(browser) as tab:
        log_in(tab, url, "otto", PASSWORD)
        tab.goto(f"{url}/models")
        tab.get_by_role("link", name="digits", exact=True).first.click()
        tab.get_by_role("link", name="Roll back to version 1 …").click()
        tab.screenshot(path=shots / "form.png", full_page=True)
        tab.get_by_role("button", name="Roll back").click()
        expect(tab.locator("h1")).to_contain_text("version 1")
        expect(tab.get_by_text("Healthy").first).to_be_visible()
        running.wait_versions("digits", 1, 2)
        tab.reload()
        tab.screenshot(path=shots / "rollout.png", full_page=True)
        tab.goto(f"{url}/models/digits/versions/2")
        said = tab.locator("p.problem", has_text="This version lost its traffic")
        expect(said).to_contain_text("rolled back to version 1, requested by user:otto")
        expect(tab.get_by_text("modelyard alias set")).to_have_count(0)
        tab.screenshot(path=shots / "version.png", full_page=True)
        tab.goto(f"{url}/routes/digits")
        expect(tab.get_by_role("heading", level=1)).to_be_visible()
        expect(tab.get_by_role("link", name="Roll back")).to_have_count(0)  # but to what was bad
        tab.screenshot(path=shots / "route.png", full_page=True)
    print(shots)


def test_a_viewer_is_not_offered_it(browser: Browser, running: Yard) -> None:
    url = f"http://127.0.0.1:{running.admin_port}"
    with page(browser) as tab:
        log_in(tab, url, "vera", PASSWORD)
        tab.goto(f"{url}/models/digits")
        expect(tab.get_by_role("heading", level=1)).to_be_visible()
        expect(tab.get_by_text("Roll back")).to_have_count(0)
