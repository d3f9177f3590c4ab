"""Models tried in a real browser: a picture read by a trained network, a language model talked to;
all of it where the gateway asks for a token that nobody has to paste.
"""

import io
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Browser, expect

from support.browser import PATIENCE_MS, log_in, page, violations
from support.chat_templates import CHATML
from support.console_seed import PASSWORD, PEOPLE
from support.llm import make_checkpoint, save_tokeniser
from support.yard import Yard, yard

pytestmark = pytest.mark.slow
expect.set_options(timeout=3 * PATIENCE_MS)
ROOT = Path(__file__).parents[3]


def picture(digit: int) -> bytes:
    """A digit the network has never seen, as a PNG of 160 by 160."""
    images = pytest.importorskip("examples.digits.images")
    held_out = images.split().held_out
    pixels = held_out.images[np.flatnonzero(held_out.labels == digit)[1], 0]
    drawn = Image.fromarray((pixels * 255).astype(np.uint8)).resize((160, 160), Image.NEAREST)
    out = io.BytesIO()
    drawn.save(out, "PNG")
    return out.getvalue()


def put_models(folder: Path) -> None:
    build = pytest.importorskip("examples.digits.build").build
    digits = folder / "digits"
    (digits / "2").mkdir(parents=True)
    build(2, digits / "2")
    for name in ("config.pbtxt", "labels.txt"):
        shutil.copy(ROOT / "examples" / "digits" / name, digits / name)
    tiny = folder / "tiny" / "1"
    tiny.mkdir(parents=True)
    make_checkpoint("llama", tiny)
    save_tokeniser(tiny)
    said = {"bos_token": "<s>", "eos_token": "</s>", "chat_template": CHATML}
    (tiny / "tokenizer_config.json").write_text(json.dumps(said))
    shutil.copytree(tiny, folder / "tiny" / "2")
    (folder / "tiny" / "config.pbtxt").write_text('backend: "llm"\nversion_policy { all {} }\n')


@pytest.fixture(scope="module")
def running(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    folder = tmp_path_factory.mktemp("tried")
    put_models(folder / "models")
    with yard(folder, inference_auth="token") as y:
        for name, role in PEOPLE.items():
            y.api("POST", "/users", {"name": name, "role": role, "password": PASSWORD})
        yield y


def url_of(y: Yard) -> str:
    return f"http://127.0.0.1:{y.admin_port}"


def test_a_picture_is_read_by_a_trained_network_and_its_label_told(
    browser: Browser, running: Yard
) -> None:
    with page(browser) as tab:
        log_in(tab, url_of(running), "vera", PASSWORD)
        tab.goto(f"{url_of(running)}/playground/digits")
        file = {"name": "seven.png", "mimeType": "image/png", "buffer": picture(7)}
        tab.get_by_label("Picture").set_input_files([file])
        expect(tab.locator("textarea[name='data.IMAGE']")).to_have_value(re.compile("^base64:"))
        assert tab.locator("input[name=classes]").is_checked()
        tab.click("button:has-text('Send')")
        expect(tab.locator("#answered-by")).to_have_text("digits version 2")
        best = tab.locator("section[aria-labelledby=answer] tbody tr").first
        expect(best).to_contain_text("seven")
        assert not violations(tab)
    made = [one for one in running.api("GET", "/tokens")[1]["items"] if one["name"] == "playground"]
    assert {(one["user"], *one["scopes"]) for one in made} == {("vera", "infer:digits")}


def test_a_language_model_answers_bit_by_bit_and_remembers(browser: Browser, running: Yard) -> None:
    with page(browser) as tab:
        log_in(tab, url_of(running), "vera", PASSWORD)
        tab.goto(f"{url_of(running)}/playground/tiny")
        tab.evaluate("window.stayed = true")
        tab.click("form.chat summary")
        tab.fill("form.chat input[name=max_tokens]", "8")
        for text in ("hello there", "and again"):
            tab.fill("form.chat textarea[name=message]", text)
            tab.click("form.chat button[type=submit]")
            expect(tab.locator("form.chat button[type=submit]")).to_be_enabled()
            expect(tab.locator("#said .problem")).to_have_count(0)
        said = json.loads(tab.locator("form.chat input[name=history]").input_value())
        assert [one["role"] for one in said] == ["user", "assistant"] * 2
        assert tab.evaluate("window.stayed") is True
        tab.fill("form.chat input[name=temperature]", "99")
        tab.fill("form.chat textarea[name=message]", "too warm")
        tab.click("form.chat button[type=submit]")
        expect(tab.locator("#said .problem")).to_contain_text("from 0 to 2")
        assert not violations(tab)


def test_two_versions_of_a_language_model_answer_side_by_side(
    browser: Browser, running: Yard
) -> None:
    with page(browser) as tab:
        log_in(tab, url_of(running), "vera", PASSWORD)
        tab.goto(f"{url_of(running)}/compare/tiny?a=version:1&b=version:2")
        tab.fill("form.both input[name=max_tokens]", "8")
        tab.click("form.both button[type=submit]")
        states = tab.locator(".answers [role=status]")
        for number in (0, 1):
            told = re.compile(
                r"First piece after \d+ ms, \d+ pieces of text, [\d.]+ pieces a second"
            )
            expect(states.nth(number)).to_have_text(told)
        expect(tab.locator("form.both button[type=submit]")).to_be_enabled()
        said = tab.locator(".answers .said").all_text_contents()
        assert said[0]
        assert said[0] == said[1]  # the same weights, at temperature 0
        assert not violations(tab)
