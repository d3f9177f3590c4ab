"""One Chromium and one server after a bad night for all tests of this folder that only look."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from support.browser import chromium
from support.console_seed import Night, break_a_folder, seed
from support.yard import yard


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as one:
        yield one


@pytest.fixture(scope="module")
def seeded(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Night]:
    with yard(tmp_path_factory.mktemp("night")) as running:
        break_a_folder(running)
        yield Night(running, seed(running))
