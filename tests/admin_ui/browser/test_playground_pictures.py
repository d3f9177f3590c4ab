"""A photograph tried in a real browser: its labels as bars, and boxes drawn in it."""

import re
from collections.abc import Iterator

import pytest
from PIL import Image
from playwright.sync_api import Browser, Page, expect

from support.browser import PATIENCE_MS, log_in, page, violations
from support.color_labels import write_color_labels, write_red_boxes
from support.console_seed import PASSWORD, PEOPLE
from support.pictures import file_of
from support.yard import Yard, yard

pytestmark = pytest.mark.slow
expect.set_options(timeout=3 * PATIENCE_MS)


@pytest.fixture(scope="module")
def running(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    folder = tmp_path_factory.mktemp("pictures")
    write_color_labels(folder / "models")
    write_red_boxes(folder / "models")
    with yard(folder, inference_auth="token") as y:
        for name, role in PEOPLE.items():
            y.api("POST", "/users", {"name": name, "role": role, "password": PASSWORD})
        yield y


def photograph(size: tuple[int, int]) -> bytes:
    """Blue, with noise as a camera has it, and a red square in its upper right quarter."""
    whole = Image.new("RGB", size, "#2050c0")
    side = size[1] // 4
    whole.paste("#ff1010", (size[0] - 2 * side, side, size[0] - side, 2 * side))
    noise = Image.effect_noise(size, 20).convert("RGB")
    return file_of(Image.blend(whole, noise, 0.1), "JPEG", quality=92)


def send(tab: Page, running: Yard, model: str, data: bytes) -> None:
    url = f"http://127.0.0.1:{running.admin_port}"
    log_in(tab, url, "vera", PASSWORD)
    tab.goto(f"{url}/playground/{model}")
    file = {"name": "photo.jpg", "mimeType": "image/jpeg", "buffer": data}
    tab.get_by_label("Picture to send").set_input_files([file])
    tab.click("button:has-text('Send picture')")


def test_a_photograph_of_12_megapixels_is_shown_with_its_labels_as_bars(
    browser: Browser, running: Yard
) -> None:
    data = photograph((4000, 3000))
    assert len(data) > 1 << 20  # more than other forms may have
    with page(browser) as tab:
        send(tab, running, "colors", data)
        expect(tab.locator(".seen [role=status]")).to_have_text(re.compile("^colors version 1, "))
        expect(tab.locator(".bars li").first).to_contain_text("blue")
        assert tab.locator(".bars meter").count() == 3
        assert tab.locator(".seen canvas").evaluate("one => [one.width, one.height]") == [800, 600]
        assert not violations(tab)


def test_boxes_are_drawn_where_the_model_found_something(browser: Browser, running: Yard) -> None:
    with page(browser) as tab:
        send(tab, running, "red_boxes", photograph((1600, 1200)))
        canvas = tab.get_by_role("img", name=re.compile(r"^The picture with \d+ boxes$"))
        expect(canvas).to_be_visible()
        expect(tab.locator(".bars li").first).to_contain_text("red")
        assert not violations(tab)


def test_a_file_that_is_no_picture_is_refused_in_the_servers_words(
    browser: Browser, running: Yard
) -> None:
    with page(browser) as tab:
        send(tab, running, "colors", b"GIF89a and so on")
        expect(tab.locator(".seen [role=status]")).to_contain_text(
            "is not a JPEG, PNG or WebP file"
        )
        assert not violations(tab)
