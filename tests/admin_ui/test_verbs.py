"""Decoupled models are tried with the verbs that answer for them: generate, generate_stream."""

import html
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from admin_ui.pages.snippets import python_urllib
from admin_ui.pages.verbs import (
    documents_in,
    fields_of,
    outputs_in,
    request_for,
    sample_request,
    verb_of,
)
from admin_ui.services import ControlApiError
from support.admin import PASSWORD, Api
from support.console import Person
from support.llm_served import write_language_model
from support.yard import Yard, write_identity, yard

EXAMPLES = Path(__file__).parents[2] / "examples"
DECOUPLED = {"model_transaction_policy": {"decoupled": True}}
LANGUAGE = {
    **DECOUPLED,
    "backend": "llm",
    "input": [{"name": "text_input"}, {"name": "sampling_parameters", "optional": True}],
}
METADATA = {
    "inputs": [
        {"name": "text_input", "datatype": "BYTES", "shape": [1]},
        {"name": "sampling_parameters", "datatype": "BYTES", "shape": [1]},
    ],
    "outputs": [{"name": "text_output", "datatype": "BYTES", "shape": [1]}],
}
NUMBERS = {"inputs": [{"name": "X", "datatype": "INT32", "shape": [-1]}]}


@pytest.mark.parametrize(
    ("config", "verb"),
    [
        ({}, "infer"),
        ({"backend": "onnxruntime"}, "infer"),
        ({"backend": "llm", "model_transaction_policy": {"decoupled": False}}, "infer"),
        (LANGUAGE, "generate"),
        ({**DECOUPLED, "backend": "python"}, "generate_stream"),
    ],
)
def test_the_verb_is_one_that_the_model_answers(config: dict[str, Any], verb: str) -> None:
    assert verb_of(config) == verb


def test_sampling_parameters_are_prefilled_with_an_object() -> None:
    text, sampling = fields_of(METADATA, LANGUAGE)
    assert (text["optional"], sampling["optional"]) == (False, True)
    assert json.loads(sampling["sample"])["max_tokens"] == 64
    sampled = sample_request("generate", [text, sampling])
    assert sampled["text_input"] == text["sample"]


def test_an_optional_input_without_values_is_not_sent() -> None:
    fields = fields_of(METADATA, LANGUAGE)
    form = {"data.text_input": "Hello there", "data.sampling_parameters": ""}
    assert request_for("generate", fields, form) == {"text_input": "Hello there"}
    shaped = {**form, "shape.text_input": "1"}
    sent = request_for("infer", fields, shaped)["inputs"]
    assert [one["name"] for one in sent] == ["text_input"]


def test_values_of_generate_are_flat_and_one_alone_is_no_list() -> None:
    fields = fields_of(NUMBERS, DECOUPLED)
    assert request_for("generate_stream", fields, {"data.X": "1, 2"}) == {"X": [1, 2]}
    assert request_for("generate_stream", fields, {"data.X": "7"}) == {"X": 7}
    with pytest.raises(ControlApiError, match="'two' is no INT32"):
        request_for("generate_stream", fields, {"data.X": "two"})


def test_one_value_fills_an_input_of_fixed_shape() -> None:
    fixed = fields_of({"inputs": [{"name": "X", "datatype": "FP32", "shape": [2, 50]}]}, DECOUPLED)
    assert sample_request("generate_stream", fixed) == {"X": [0.0] * 100}


def test_the_events_of_a_stream_are_one_answer() -> None:
    documents = documents_in(b'data: {"OUT":1}\n\ndata: {"OUT":[2,3]}\n\n')
    output = {"name": "OUT", "datatype": "INT32", "shape": [1]}
    assert outputs_in(documents, [output])["outputs"] == [{**output, "data": [1, 2, 3]}]
    assert documents_in(b"<html>") == [{"error": "<html>"}]
    assert documents_in(b"[1]") == [{"error": "[1]"}]


@pytest.mark.parametrize("events", [False, True])
def test_the_program_for_the_standard_library_is_one(events: bool) -> None:
    for body in ({"text_input": "it's"}, {"X": [0] * 4000}):
        compile(python_urllib("http://h/v2/models/a'b/generate", body, True, events), "x", "exec")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    folder = tmp_path_factory.mktemp("yard")
    (folder / "models").mkdir()
    write_language_model(folder / "models", "tiny")
    repeat = folder / "models" / "repeat"
    (repeat / "1").mkdir(parents=True)
    shutil.copy(EXAMPLES / "repeat" / "config.pbtxt", repeat)
    shutil.copy(EXAMPLES / "repeat" / "model.py", repeat / "1")
    write_identity(folder, "echo", 1)
    with yard(folder) as running:
        running.api("POST", "/users", {"name": "otto", "role": "viewer", "password": PASSWORD})
        yield running


class _Door(Api):
    def __init__(self, port: int) -> None:
        self.port = port


def viewer(running: Yard) -> Person:
    one = Person(_Door(running.admin_port))
    assert one.log_in("otto").status == 303
    return one


def snippets(page: str) -> list[str]:
    return [
        html.unescape(one) for one in re.findall(r"<pre tabindex=\"0\">(.*?)</pre>", page, re.S)
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("model", "answers"), [("tiny", "text_output"), ("repeat", "OUT")])
def test_the_commands_shown_are_answered(served: Yard, model: str, answers: str) -> None:
    page = viewer(served).get(f"/playground/{model}").text
    command, program = snippets(page)[-2:]
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
    assert f'"{answers}":' in done.stdout, done.stdout
    done = subprocess.run(["python3", "-c", program], capture_output=True, text=True, check=False)
    assert answers in done.stdout, done.stderr


@pytest.mark.slow
def test_the_form_as_it_is_prefilled_is_answered(served: Yard) -> None:
    visitor = viewer(served)
    page = visitor.get("/playground/tiny").text
    filled = dict(re.findall(r'<textarea[^>]* name="(data\.\w+)"[^>]*>([^<]*)<', page))
    form = {name: html.unescape(text) for name, text in filled.items()}
    assert form["data.text_input"]
    found = visitor.post("/playground/tiny/call", form)
    assert "HTTP 200" in found.text
    assert "text_output" in found.text
    numbers = {"data.IN": "4 8", "data.DELAY": "0 0", "data.WAIT": "0"}
    assert "4  8" in visitor.post("/playground/repeat/call", numbers).text


@pytest.mark.slow
@pytest.mark.parametrize("model", ["tiny", "repeat", "echo"])
def test_every_call_on_the_page_of_a_version_runs_as_copied(served: Yard, model: str) -> None:
    page = viewer(served).get(f"/models/{model}/versions/1").text
    calls = page.split('id="calls"')[1].split("</section>")[0]
    shown = snippets(calls)
    assert len(shown) == (4 if model == "tiny" else 2)
    for call in shown:
        command = ["bash", "-c", call] if call.startswith("curl") else [sys.executable, "-c", call]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, (call, done.stderr)
        assert done.stdout.strip(), call
        assert '"error"' not in done.stdout, (call, done.stdout)


@pytest.mark.slow
def test_a_model_without_a_chat_template_is_offered_a_text(served: Yard) -> None:
    visitor = viewer(served)
    page = visitor.get("/playground/tiny").text
    assert "Complete a text" in page
    assert "System message" not in page
    form = {"kind": "text", "message": "Once", "temperature": "0", "max_tokens": "4"}
    streamed = visitor.post("/playground/tiny/chat", form, Accept="text/event-stream")
    assert streamed.status == 200
    assert '"text"' in streamed.text
    whole = visitor.post("/playground/tiny/chat", form)
    assert whole.status == 200
    assert 'class="assistant"' in whole.text


@pytest.mark.slow
def test_a_decoupled_models_responses_come_one_by_one(served: Yard) -> None:
    numbers = {"data.IN": "4 8", "data.DELAY": "0 0", "data.WAIT": "0"}
    visitor = viewer(served)
    assert "stream.js" in visitor.get("/playground/repeat").text
    found = visitor.post("/playground/repeat/call", numbers, Accept="text/event-stream")
    lines = [line for line in found.text.splitlines() if line.startswith("data:")]
    assert [json.loads(line[5:])["OUT"] for line in lines] == [4, 8]
