"""`modelyard infer` against a real server, and what it makes of what people write."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from server.cli.commands.command import CommandFailed
from server.cli.commands.infer_body import body_of
from server.cli.main import main
from support.llm_served import write_language_model
from support.runtime import save_unary
from support.server import Server, running, write_identity

IMAGE = {"name": "x", "datatype": "FP32", "shape": [-1, 3, 2, 2]}
ROW = {"name": "x", "datatype": "FP32", "shape": [-1, 4]}
WORD = {"name": "w", "datatype": "BYTES", "shape": [-1, 1]}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    models = tmp_path_factory.mktemp("infer")
    write_identity(models, "echo")
    (models / "image" / "1").mkdir(parents=True)
    save_unary(models / "image" / "1" / "model.onnx", shape=("N", 3, 4, 4))
    write_language_model(models, "lm")
    with running(models) as one:
        yield one


@pytest.fixture
def infer(server: Server, capsys: pytest.CaptureFixture[str]) -> Any:
    def one(*words: str) -> tuple[int, str, str]:
        status = main(["infer", *words, "--rest", f"http://{server.http}"])
        said = capsys.readouterr()
        return status, said.out, said.err

    return one


def test_without_data_it_shows_what_to_send_and_that_is_answered(infer: Any) -> None:
    status, out, err = infer("echo")
    assert (status, err) == (0, "")
    assert "input  INPUT0 FP32 [-1,-1]" in out
    sample = out.splitlines()[-1].partition(" -d ")[2].strip("'")
    assert infer("echo", "-d", sample) == (0, "OUTPUT0 FP32 [1,1]: 0\n", "")


@pytest.mark.parametrize("data", ["[1, 2.5]", "[[1, 2.5]]", '{"INPUT0": [1, 2.5]}'])
def test_values_get_their_shape(infer: Any, data: str) -> None:
    assert infer("echo", "-d", data) == (0, "OUTPUT0 FP32 [1,2]: 1, 2.5\n", "")


def test_a_file_and_a_whole_body_are_taken(infer: Any, tmp_path: Path) -> None:
    body = {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1, 1], "data": [7]}]}
    (tmp_path / "body.json").write_text(json.dumps(body))
    status, out, _ = infer("echo", "-d", f"@{tmp_path}/body.json", "--json")
    assert status == 0
    assert json.loads(out)["outputs"][0]["data"] == [7.0]


def test_an_image_is_resized_and_sent(infer: Any, tmp_path: Path) -> None:
    Image.new("RGB", (30, 20), (255, 0, 51)).save(tmp_path / "red.png")
    status, out, _ = infer("image", "-d", str(tmp_path / "red.png"), "--json")
    assert status == 0
    output = json.loads(out)["outputs"][0]
    assert output["shape"] == [1, 3, 4, 4]
    assert output["data"] == pytest.approx([1.0] * 16 + [0.0] * 16 + [0.2] * 16)


def test_a_language_model_takes_text(infer: Any) -> None:
    status, out, err = infer("lm", "-d", "Hello")
    assert (status, err) == (0, "")
    assert out.strip()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("nope",), "`modelyard status` lists the models"),
        (("echo", "--version", "7"), "`modelyard status` lists the models"),
        (("echo", "-d", '["a"]'), "without -d shows what it takes"),
        (("echo", "-d", "[1"), "is no JSON: "),
        (("echo", "-d", '{"IN": [1]}'), "no input 'IN'; its inputs are INPUT0"),
        (("echo", "-d", "@nowhere.json"), "nowhere.json cannot be read: No such file"),
        (("lm", "-d", "@nowhere.json"), "takes its text with -d"),
    ],
)
def test_a_mistake_is_one_line_with_a_remedy(
    infer: Any, words: tuple[str, ...], expected: str
) -> None:
    status, out, err = infer(*words)
    assert (status, out) == (1, "")
    assert expected in err
    assert err.count("\n") == 1


def test_where_nothing_or_something_else_answers_it_says_where_to_look(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["infer", "echo", "--rest", "http://127.0.0.1:1"]) == 1
    assert "start one with `modelyard serve`" in capsys.readouterr().err
    assert main(["infer", "echo", "--rest", f"http://{server.metrics}"]) == 1
    assert "is no inference server" in capsys.readouterr().err
    assert main(["infer", "echo", "--rest", "nowhere"]) == 1
    assert "give --rest http(s)://HOST:PORT" in capsys.readouterr().err


def test_text_is_taken_for_a_model_of_one_word() -> None:
    assert body_of("Hello you", [WORD])["inputs"][0]["data"] == ["Hello you"]


def test_an_image_needs_a_model_that_takes_one(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    Image.new("RGB", (2, 2)).save(path)
    with pytest.raises(CommandFailed, match="one input of shape"):
        body_of(f"@{path}", [ROW])
    with pytest.raises(CommandFailed, match="one input of shape"):
        body_of(f"@{path}", [IMAGE, ROW])
    path.write_bytes(b"x")
    with pytest.raises(CommandFailed, match="cannot be read as an image"):
        body_of(f"@{path}", [IMAGE])
