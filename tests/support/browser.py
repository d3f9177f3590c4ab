"""A real Chromium for tests of the console: `with chromium() as browser, page(browser) as tab`.

Chromium comes from the system (apt); without one the tests are skipped, but with CI set they fail.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

AXE = Path(__file__).parent.parent / "admin_ui" / "browser" / "vendor" / "axe.min.js"
NARROW, WIDE = (380, 800), (1920, 1080)
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
PATIENCE_MS = 60_000


def executable() -> str:
    """Where Chromium is; skips the test, or fails it under CI, when it is nowhere."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        reason = "no chromium; install it with: apt-get install -y chromium"
        if "CI" in os.environ:
            pytest.fail(reason)
        pytest.skip(reason)
    return found


@contextmanager
def chromium() -> Iterator[Browser]:
    path = executable()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS, headless=True)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def page(
    browser: Browser,
    size: tuple[int, int] = (1280, 900),
    dark: bool = False,
    zone: str = "UTC",
    trusting: bool = False,
) -> Iterator[Page]:
    """A tab of its own, without cookies; what its console complains of fails the test.
    `trusting`: it takes any certificate."""
    width, height = size
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if dark else "light",
        timezone_id=zone,
        locale="en-GB",
        bypass_csp=False,
        ignore_https_errors=trusting,
    )
    context.set_default_timeout(PATIENCE_MS)
    tab = context.new_page()
    complaints: list[str] = []
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    tab.on("console", lambda said: _note(complaints, said))
    try:
        yield tab
    finally:
        context.close()
    assert not complaints, complaints


def log_in(tab: Page, url: str, name: str, password: str) -> None:
    tab.goto(f"{url}/login")
    tab.fill("#name", name)
    tab.fill("#password", password)
    tab.press("#password", "Enter")
    tab.wait_for_url(f"{url}/")


def violations(tab: Page) -> list[str]:
    """What axe-core finds wrong with the page, one line each."""
    # In the page's own world a strict CSP would keep it out; the text goes in over DevTools.
    tab.evaluate(AXE.read_text() + "\n;0")
    found: dict[str, Any] = tab.evaluate(
        "async () => await axe.run(document, {resultTypes: ['violations']})"
    )
    return [
        f"{one['id']}: {one['help']}: {node['target']} {node.get('failureSummary', '')}"
        for one in found["violations"]
        for node in one["nodes"]
    ]


def _note(complaints: list[str], said: Any) -> None:
    """Statuses of answers are no complaint of a script's or the CSP's."""
    if said.type == "error" and "Failed to load resource" not in said.text:
        complaints.append(said.text)
