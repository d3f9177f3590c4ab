"""The playground: requests made of fields, answers shown, through a real gateway."""

import base64
import json
import struct
from collections.abc import Iterator
from urllib.parse import urlencode

import pytest

from admin_ui.pages.picture_answers import MOST_PICTURE_BYTES
from admin_ui.pages.snippets import curl, python_client
from admin_ui.pages.tensors import (
    body_of,
    image_of,
    laid_out,
    output_rows,
    request_of,
    sample,
)
from admin_ui.services import ControlApiError
from support.admin import PASSWORD, Api
from support.console import COOKIE, Person, person
from support.yard import Yard, write_identity, yard

FP32 = {"name": "X", "datatype": "FP32", "shape": [-1, 2]}


def fields(data: str, shape: str = "1, 2") -> dict[str, str]:
    return {"shape.X": shape, "data.X": data}


@pytest.mark.parametrize("data", ["1 2.5", "1, 2.5", "[1, 2.5]", "[[1], [2.5]]"])
def test_numbers_are_taken_however_they_are_written(data: str) -> None:
    made = request_of([FP32], fields(data))
    wanted = {"name": "X", "shape": [1, 2], "datatype": "FP32", "data": [1.0, 2.5]}
    assert made == {"inputs": [wanted]}


def test_one_value_fills_the_shape() -> None:
    large = {**FP32, "shape": [-1, 28, 28]}
    made = request_of([large], fields(sample(large), "1, 28, 28"))["inputs"][0]
    assert made["data"] == [0.0] * 784


def test_json_is_laid_out_with_lists_of_numbers_on_one_line() -> None:
    document = {"inputs": [{"name": "X", "data": [1.0, 2.0]}], "id": ""}
    text = laid_out(document)
    assert json.loads(text) == document
    assert '"data": [1.0, 2.0]' in text
    assert json.loads(laid_out({"a": {}, "b": [], "c": [[1], [2]], "d": None})) is not None


def test_bytes_of_a_picture_texts_and_truths_are_taken() -> None:
    raw = "base64:" + base64.b64encode(struct.pack("<2f", 0.5, -1)).decode()
    assert request_of([FP32], fields(raw))["inputs"][0]["data"] == [0.5, -1.0]
    texts = {**FP32, "datatype": "BYTES"}
    assert request_of([texts], fields("one text\nanother"))["inputs"][0]["data"] == [
        "one text", "another",
    ]  # fmt: skip
    truths = {**FP32, "datatype": "BOOL"}
    assert request_of([truths], fields("true 0"))["inputs"][0]["data"] == [True, False]


@pytest.mark.parametrize(
    ("data", "shape", "field"),
    [
        ("1 2 3", "1, 2", "data.X"),
        ("1 x", "1, 2", "data.X"),
        ("1 nan", "1, 2", "data.X"),
        ("[1, 2", "1, 2", "data.X"),
        ("[" * 5000, "1, 2", "data.X"),
        ("base64:!", "1, 2", "data.X"),
        ("base64:AAAA", "1, 2", "data.X"),
        ("1 2", "1, -2", "shape.X"),
        ("1 2", "999999999, 999999999", "shape.X"),
    ],
)
def test_what_cannot_be_a_tensor_is_refused_at_its_field(data: str, shape: str, field: str) -> None:
    with pytest.raises(ControlApiError) as caught:
        request_of([FP32], fields(data, shape))
    assert (caught.value.status, caught.value.field) == (422, field)


@pytest.mark.parametrize("text", ["", "{", "[]", "1", "[" * 50_000])
def test_a_body_that_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(ControlApiError):
        body_of(text)


def test_which_tensors_are_pictures() -> None:
    first = image_of({"datatype": "FP32", "shape": [-1, 3, 224, 112]})
    assert first == {"width": 112, "height": 224, "channels": 3, "first": True}
    last = image_of({"datatype": "UINT8", "shape": [28, 28, 1]})
    assert last == {"width": 28, "height": 28, "channels": 1, "first": False}
    assert image_of(FP32) is None
    assert image_of({"datatype": "INT64", "shape": [1, 3, 224, 224]}) is None


def test_classes_are_shown_as_such_and_long_outputs_are_cut() -> None:
    classes = {"name": "Y", "datatype": "BYTES", "shape": [2], "data": ["0.9:7:seven", "0.1:1"]}
    long = {"name": "Z", "datatype": "INT64", "shape": [300], "data": list(range(300))}
    one, two = output_rows({"outputs": [classes, long]})
    assert one["classes"][0] == {"score": "0.9", "index": "7", "label": "seven"}
    assert (len(two["values"]), two["more"], two["classes"]) == (100, 200, [])


def test_what_is_copied_is_quoted_for_where_it_goes() -> None:
    body = {"inputs": [{"name": "X'; rm", "datatype": "BYTES", "shape": [1], "data": ["'$(id)"]}]}
    command = curl("http://127.0.0.1:8000/v2/models/a'b/infer", body)
    assert "'\"'\"'" in command
    compile(python_client("127.0.0.1:8000", "a'b", "/versions/2", body), "copied", "exec")


def test_without_a_gateway_the_page_says_so_and_still_shows_the_code(night: Api) -> None:
    vera = person(night, "viewer")
    assert 'href="/playground/digits"' in vera.get("/playground").text
    page = vera.get("/playground/digits")
    assert page.status == 200
    assert "no gateway" in page.text
    assert "tritonclient" in page.text
    sent = vera.post("/playground/digits/call-json", {"body": "{}", "target": ""})
    assert sent.status == 503
    assert Person(night).get("/playground").status == 303
    assert vera.post("/playground/digits/call-json", {"token": "0" * 64}).status == 403


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    with yard(tmp_path_factory.mktemp("yard")) as running:
        folder = running.repository("vision")
        write_identity(folder, "digits", 1, 2)
        running.commit(folder, "Digits")
        running.push(folder)
        running.wait_versions("digits", 2)
        arms = [{"name": "stable", "model": "digits", "version": 1, "weight": 100}]
        running.api("PUT", "/routes/digits", {"arms": arms})
        running.api("PUT", "/models/digits/aliases/champion", {"version": 2})
        running.wait_versions("digits", 1, 2)
        yield running


@pytest.fixture(scope="module")
def otto(served: Yard) -> "Visitor":
    served.api("POST", "/users", {"name": "otto", "role": "viewer", "password": PASSWORD})
    return Visitor(served)


class Visitor(Person):
    """A person at a yard's console."""

    def __init__(self, running: Yard) -> None:
        super().__init__(_Door(f"http://127.0.0.1:{running.admin_port}", running.admin_port))
        assert self.log_in("otto").status == 303


class _Door(Api):
    """Where the console of a yard is."""

    def __init__(self, url: str, port: int) -> None:
        self.port = port


@pytest.mark.slow
def test_a_model_is_tried_with_fields_made_of_its_metadata(otto: Person) -> None:
    page = otto.get("/playground/digits").text
    assert 'name="data.INPUT0"' in page
    for choice in ("as the route decides", "arm stable", "version 2", "alias @champion"):
        assert choice in page
    form = {"shape.INPUT0": "1, 3", "data.INPUT0": "1 2.5 -3"}
    for target, version in (
        ("", "1"),
        ("version:2", "2"),
        ("alias:champion", "2"),
        ("arm:stable", "1"),
    ):
        found = otto.post("/playground/digits/call", {**form, "target": target})
        assert found.status == 200, found.text[-2000:]
        assert f"digits version {version}</dd>" in found.text, target
        assert "1.0  2.5  -3.0" in found.text
    assert "digits@1;stable" in otto.post("/playground/digits/call", form).text
    wrong = otto.post("/playground/digits/call", {**form, "data.INPUT0": "1 two"})
    assert wrong.status == 422
    assert "&#39;two&#39; is no FP32" in wrong.text
    assert "1 two</textarea>" in wrong.text
    unknown = otto.post("/playground/digits/call", {**form, "target": "version:9"})
    assert "9" in unknown.text


@pytest.mark.slow
def test_a_model_is_tried_with_json_and_what_the_gateway_refuses_is_shown(otto: Person) -> None:
    body = '{"inputs": [{"name": "INPUT0", "shape": [1, 1], "datatype": "FP32", "data": [7]}]}'
    found = otto.post("/playground/digits/call-json", {"body": body, "target": "version:2"})
    assert "digits version 2</dd>" in found.text
    assert "/v2/models/digits/versions/2/infer" in found.text
    refused = otto.post("/playground/digits/call-json", {"body": "{}", "target": ""})
    assert "HTTP 400" in refused.text
    broken = otto.post("/playground/digits/call-json", {"body": "{", "target": ""})
    assert broken.status == 422
    assert "this is no JSON" in broken.text


@pytest.mark.slow
def test_a_picture_goes_to_the_gateway_as_it_is(otto: Person) -> None:
    otto.get("/playground/digits")
    headers = {
        "Accept": "application/json",
        "Content-Type": "application/octet-stream",
        "X-Form-Fields": urlencode({"token": otto.token, "target": "", "kind": "image/png"}),
        "Origin": otto.api.url,
        "Cookie": f"{COOKIE}={otto.cookie}",
    }
    path = "//playground/digits/picture"
    found = otto.api.ask("POST", path, b"\x89PNG%41", headers=headers)
    assert (found.status, found.json["status"]) == (200, 400), found.text
    assert "takes no picture as its body" in found.json["error"]
    assert otto.api.ask("POST", path, b"", headers=headers).status == 422
    too_large = {**headers, "Content-Length": str(MOST_PICTURE_BYTES + 1)}
    assert otto.api.ask("POST", path, b"", headers=too_large).status == 413
