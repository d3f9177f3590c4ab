"""The table of servers in a real browser, on a narrow and a wide screen."""

import pytest
from playwright.sync_api import Browser

from control.servers import register
from control.sql.database import SYSTEM
from support.admin import PASSWORD, Api
from support.browser import log_in, page

pytestmark = pytest.mark.slow
LONG = "https://modelyard-production.eu-west-1.internal.example.com:8003"


@pytest.mark.parametrize("width", [1000, 1500])
def test_the_address_of_a_server_is_on_one_line(browser: Browser, night: Api, width: int) -> None:
    with night.database.change(SYSTEM) as tx:
        register(tx, "server9", "boot", "0.1.0", LONG)
    night.user("vera", "viewer")
    with page(browser) as tab:
        log_in(tab, night.url, "vera", PASSWORD)
        tab.set_viewport_size({"width": width, "height": 700})
        tab.goto(f"{night.url}/servers")
        address = tab.locator("th .url", has_text=LONG)
        box = address.bounding_box()
        assert box is not None
        assert box["height"] < 25
        assert tab.locator("thead th").first.inner_text().startswith("Server")
