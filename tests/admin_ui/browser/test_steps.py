"""The graph of an ensemble and the sequences of a model in a real browser."""

import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton
from playwright.sync_api import Browser, expect

from support.browser import chromium, log_in, page, violations
from support.console_seed import PASSWORD
from support.sequences import write_running_sum
from support.server import identity_config
from support.yard import Yard, yard

pytestmark = pytest.mark.slow

PICTURES = os.environ.get("STEPS_PICTURES", "")
SURE, UNSURE = 0.95, 0.5


def step(model: str, reads: str, writes: str) -> str:
    return (
        f'step {{ model_name: "{model}" model_version: -1\n'
        f'  input_map {{ key: "INPUT0" value: "{reads}" }}\n'
        f'  output_map {{ key: "OUTPUT0" value: "{writes}" }} }}\n'
    )


def ensemble(name: str, steps: str, more: str = "", rows: int = 8, dims: str = "1") -> str:
    return (
        f'name: "{name}"\nplatform: "ensemble"\nmax_batch_size: {rows}\n'
        f'input {{ name: "X" data_type: TYPE_FP32 dims: {dims} }}\n'
        f'output {{ name: "Y" data_type: TYPE_FP32 dims: {dims} }}\n'
        f"ensemble_scheduling {{\n{steps}}}\n{more}"
    )


def parameter(key: str, value: str) -> str:
    return f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n'


def write(folder: Path, name: str, config: str) -> None:
    (folder / name / "1").mkdir(parents=True)
    (folder / name / "config.pbtxt").write_text(config)


TRIAGE = (
    step("decode", "X", "pixels")
    + step("cheap", "pixels", "confidence")
    + step("labels", "pixels", "first_guess")
    + step("dear", "pixels", "Y")
    + step("keep", "first_guess", "Y")
)
DOUBTS = parameter("condition.dear", "confidence < 0.9") + parameter(
    "condition.keep", "confidence >= 0.9"
)


def twenty_steps() -> str:
    """Three branches of five steps each, which are joined one after another."""
    made = step("decode", "X", "a0")
    for branch in "bcd":
        made += step("keep", "a0", f"{branch}1")
        made += "".join(step("keep", f"{branch}{n}", f"{branch}{n + 1}") for n in range(1, 5))
    for one, other, both in (("b5", "c5", "e"), ("d5", "e", "f"), ("a0", "f", "g")):
        joined = f'input_map {{ key: "INPUT1" value: "{other}" }}\n  output_map'
        made += step("pair", one, both).replace("output_map", joined)
    return made + step("dear", "g", "Y")


def write_models(models: Path) -> None:
    """`triage`: five steps, one of two is skipped for each row; `crops`: one step mapped over a
    list; `twenty`: as many steps, some beside each other; `sums`: a sequence model."""
    for name in ("decode", "cheap", "labels", "dear", "keep"):
        delay = 20 if name == "dear" else 0
        write(models, name, identity_config(name, delay).replace("dims: -1", "dims: 1"))
    write(models, "triage", ensemble("triage", TRIAGE, DOUBTS))
    one = step("keep", "X", "Y")
    write(models, "crops", ensemble("crops", one, parameter("map.0", "X"), 0, "[ -1, 1 ]"))
    write(models, "twenty", ensemble("twenty", twenty_steps()))
    config = identity_config("pair").replace("dims: -1", "dims: 1")
    for kind in ("input", "output"):
        config += f'{kind} {{ name: "{kind.upper()}1" data_type: TYPE_FP32 dims: 1 }}\n'
    write(models, "pair", config)
    write_running_sum(models, "sums", "direct { } max_sequence_idle_microseconds: 600000000")


def ask(y: Yard, model: str, values: list[list[float]]) -> None:
    sent = np.array(values, np.float32)
    with triton.InferenceServerClient(f"127.0.0.1:{y.server.http_port}") as client:
        tensor = triton.InferInput("X", list(sent.shape), "FP32")
        tensor.set_data_from_numpy(sent)
        answer = client.infer(model, [tensor]).as_numpy("Y")
    np.testing.assert_array_equal(answer, sent)


def begin_sequences(y: Yard, count: int) -> None:
    with triton.InferenceServerClient(f"127.0.0.1:{y.server.http_port}") as client:
        for key in range(1, count + 1):
            tensor = triton.InferInput("INPUT", [1, 1], "INT32")
            tensor.set_data_from_numpy(np.array([[key]], np.int32))
            client.infer("sums", [tensor], sequence_id=key, sequence_start=True)


def steps_of(y: Yard, model: str) -> dict[str, Any]:
    until = (datetime.now(UTC) + timedelta(minutes=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    status, found = y.api("GET", f"/instances/{model}/versions/1/steps?until={until}")
    assert status == 200, found
    return dict(found)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    folder = tmp_path_factory.mktemp("steps-page")
    (folder / "models").mkdir()
    write_models(folder / "models")
    with yard(folder) as y:
        for name, role in {"iris": "admin", "vera": "viewer"}.items():
            y.api("POST", "/users", {"name": name, "role": role, "password": PASSWORD})
        for _ in range(5):
            ask(y, "triage", [[UNSURE], [SURE], [SURE], [SURE]])
        ask(y, "crops", [[1.0], [2.0], [3.0]])
        ask(y, "twenty", [[1.0]])
        begin_sequences(y, 3)
        y.wait_for(lambda: steps_of(y, "triage")["requests"] == 5, "the window of the requests")
        yield y


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened


def url(y: Yard) -> str:
    return f"http://127.0.0.1:{y.admin_port}"


def test_the_api_tells_the_graph_and_what_each_step_did(served: Yard) -> None:
    found = steps_of(served, "triage")
    dear, keep = (one for one in found["steps"] if one["condition"])
    assert (found["inputs"], found["outputs"], found["failed"]) == (["X"], ["Y"], 0)
    assert dear["condition"] == "confidence < 0.9"
    assert dear["inputs"] == {"INPUT0": "pixels"}
    assert (dear["figures"]["answered"], dear["figures"]["skipped_share"]) == (5, 0.75)
    assert (keep["figures"]["answered"], keep["figures"]["skipped_share"]) == (5, 0.25)
    assert (dear["figures"]["rows_per_call"], keep["figures"]["rows_per_call"]) == (1, 3)
    assert dear["figures"]["latency_ms_p50"] >= 20
    (mapped,) = steps_of(served, "crops")["steps"]
    assert (mapped["mapped"], mapped["figures"]["calls_per_request"]) == ("X", 3)
    assert served.api("GET", "/instances/dear/versions/1/steps")[0] == 404


def test_the_command_line_shows_the_same(served: Yard) -> None:
    served.wait_for(lambda: "75 %" in served.cli("model", "steps", "triage"), "whole points")
    assert "if confidence < 0.9" in served.cli("model", "steps", "triage")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
def test_axe_finds_nothing_and_nothing_is_wider_than_the_page(
    served: Yard, browser: Browser, dark: bool, width: int
) -> None:
    with page(browser, (width, 900), dark=dark) as tab:
        log_in(tab, url(served), "iris", PASSWORD)
        for model in ("triage", "crops", "twenty", "sums"):
            tab.goto(f"{url(served)}/models/{model}")
            if model == "sums":
                expect(tab.get_by_role("heading", name="Sequences")).to_be_visible()
            else:
                expect(tab.locator(".graph svg")).to_be_visible()
                tab.locator("section[aria-labelledby=steps] summary").click()
            if PICTURES:
                look = "dark" if dark else "light"
                where = Path(PICTURES) / f"{model}-{width}-{look}.png"
                tab.screenshot(path=where, full_page=True)
            assert violations(tab) == []
            assert tab.evaluate("document.documentElement.scrollWidth") <= width


def test_steps_are_reached_by_keyboard_and_lead_to_their_models(
    served: Yard, browser: Browser
) -> None:
    with page(browser) as tab:
        log_in(tab, url(served), "vera", PASSWORD)
        tab.goto(url(served) + "/models/triage")
        tab.locator(".graph").focus()
        tab.keyboard.press("Tab")
        expect(tab.locator(".graph a:focus")).to_have_accessible_name(
            re.compile("^0 decode 5 calls ")
        )
        tab.keyboard.press("Enter")
        tab.wait_for_url(url(served) + "/models/decode")
        expect(tab.locator(".graph")).to_have_count(0)


def test_the_sequences_that_live_are_on_the_models_page(served: Yard, browser: Browser) -> None:
    with page(browser) as tab:
        log_in(tab, url(served), "vera", PASSWORD)
        tab.goto(url(served) + "/models/sums")
        row = tab.locator("section[aria-labelledby=sequences] tbody tr")
        expect(row).to_contain_text("3")
        expect(row).to_contain_text("16 B")
