"""An operator quantises `digits` in a real browser, sees the report, splits traffic, promotes."""

from collections.abc import Iterator

import numpy as np
import pytest
from playwright.sync_api import Browser, expect

from support.browser import PATIENCE_MS, log_in, page
from support.console_seed import PASSWORD, PEOPLE
from support.tool_sources import digits_rows, digits_source
from support.yard import Yard, yard

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
expect.set_options(timeout=PATIENCE_MS)
JOB_MS = 600_000


@pytest.fixture
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    folder = tmp_path_factory.mktemp("promotion")
    model = folder / "models" / "digits"
    version = digits_source(model / "1")
    (version / "config.pbtxt").rename(model / "config.pbtxt")
    (model / "labels.txt").write_text("".join(f"{digit}\n" for digit in range(10)))
    np.savez(model / "rows.npz", **digits_rows())
    with yard(folder) as y:
        y.wait_for(lambda: y.api("GET", "/loads")[1]["items"] != [], "the model's state")
        for name, role in PEOPLE.items():
            y.api("POST", "/users", {"name": name, "role": role, "password": PASSWORD})
        yield y


def test_a_version_is_quantised_compared_and_promoted(
    browser: Browser, running: Yard, tmp_path_factory: pytest.TempPathFactory
) -> None:
    url = f"http://127.0.0.1:{running.admin_port}"
    shots = tmp_path_factory.mktemp("shots")
    with page(browser) as tab:
        log_in(tab, url, "otto", PASSWORD)
        tab.goto(f"{url}/jobs/new?type=quantise&model=digits&version=1")
        tab.locator("input[name='data']").fill("rows.npz")
        tab.screenshot(path=shots / "form.png", full_page=True)
        tab.get_by_role("button", name="Start the job").click()
        expect(tab.get_by_role("meter", name="Progress")).to_be_visible()
        tab.screenshot(path=shots / "running.png", full_page=True)
        compare = tab.get_by_role("button", name="Start an A/B against the original")
        compare.wait_for(timeout=JOB_MS)
        for figure in ("accuracy", "size", "latency"):
            expect(tab.get_by_text(figure).first).to_be_visible()
        tab.screenshot(path=shots / "report.png", full_page=True)
        compare.click()
        expect(tab.get_by_role("heading", level=1)).to_have_text("digits")
        tab.screenshot(path=shots / "route.png", full_page=True)
        tab.get_by_role("link", name="Weights …").click()
        tab.get_by_role("spinbutton", name="quantise, ").fill("100")
        tab.get_by_role("button", name="Set weights").click()
        expect(tab.get_by_label("Weight of quantise")).to_have_attribute("value", "100.0")
        tab.screenshot(path=shots / "promoted.png", full_page=True)
        tab.goto(f"{url}/models/digits-int8/versions/1")
        expect(tab.get_by_text("quantise").first).to_be_visible()
        tab.screenshot(path=shots / "version.png", full_page=True)
    arms = running.api("GET", "/routes/digits")[1]["arms"]
    assert [(one["model"], one["weight"]) for one in arms] == [("digits", 0), ("digits-int8", 100)]
    print(shots)
