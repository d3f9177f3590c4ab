"""`modelyard init`: the folders that it makes are served, and the calls that it prints work."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import joblib
import lightgbm
import numpy as np
import onnx
import pytest
import torch
import xgboost
from onnx import TensorProto, numpy_helper
from sklearn.linear_model import LogisticRegression

from server.cli.main import main
from support.backend_cases import save_openvino
from support.llm_served import write_language_model
from support.runtime import save_unary
from support.server import running
from support.tflite import save_tflite_pairs

PYTHON_MODEL = """
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def execute(self, requests):
        found = [pb_utils.get_input_tensor_by_name(one, "IN").as_numpy() for one in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", 2 * one)]) for one in found]
"""
DESCRIBED_MODEL = """
import numpy as np
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "WORD", "data_type": "TYPE_STRING", "dims": [1]})
        config.add_output({"name": "SIZE", "data_type": "TYPE_INT32", "dims": [1]})
        config.set_max_batch_size(0)
        return config
    def execute(self, requests):
        found = [pb_utils.get_input_tensor_by_name(one, "WORD").as_numpy() for one in requests]
        sizes = [np.array([len(one[0])], np.int32) for one in found]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("SIZE", one)]) for one in sizes]
"""


def init(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, str, str]:
    status = main(["init", *map(str, words)])
    said = capsys.readouterr()
    return status, said.out, said.err


def make_plain(folder: Path) -> None:
    """What needs no torch to be made."""
    save_unary(folder / "small.onnx", shape=("N", 4))
    (folder / "code.py").write_text(PYTHON_MODEL)


def make_all(folder: Path) -> None:
    make_plain(folder)
    save_unary(folder / "image.onnx", shape=("N", 3, 64, 64))
    external(folder / "external.onnx")
    model = torch.nn.Linear(4, 2).eval()
    torch.jit.trace(model, torch.zeros(2, 4)).save(folder / "script.pt")
    rows = ({0: torch.export.Dim("rows")},)
    exported = torch.export.export(model, (torch.zeros(2, 4),), dynamic_shapes=rows)
    torch.export.save(exported, folder / "program.pt2")
    (folder / "described.py").write_text(DESCRIBED_MODEL)
    write_language_model(folder, "checkpoint")
    save_openvino(folder / "ir.xml")
    save_tflite_pairs(folder / "lite.tflite")
    rows = np.random.default_rng(1).random((50, 4))
    booster = xgboost.train({"nthread": 1}, xgboost.DMatrix(rows, rows[:, 0]), 2)
    booster.save_model(folder / "boost.json")
    quiet = {"verbosity": -1, "num_threads": 1, "min_data_in_leaf": 5}
    lightgbm.train(quiet, lightgbm.Dataset(rows, rows[:, 0]), 2).save_model(folder / "trees.txt")


def external(path: Path) -> None:
    """A graph that adds weights which lie in a file of their own."""
    weights = numpy_helper.from_array(np.ones(2048, np.float32), "W")
    tensor = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Add", ["X", "W"], ["Y"])],
        "g",
        [tensor("X", TensorProto.FLOAT, ["N", 2048])],
        [tensor("Y", TensorProto.FLOAT, ["N", 2048])],
        [weights],
    )
    model = onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=10
    )
    onnx.save(model, path, save_as_external_data=True, location="weights.bin")


MADE: dict[str, tuple[str, ...]] = {
    "small.onnx": (),
    "image.onnx": (),
    "external.onnx": (),
    "script.pt": ("--input", "x:FP32:-1,4", "--output", "OUTPUT__0:FP32:-1,2"),
    "program.pt2": (),
    "code.py": (),
    "described.py": (),
    "checkpoint/1": (),
    "ir.xml": (),
    "lite.tflite": (),
    "boost.json": (),
    "trees.txt": (),
}


@pytest.mark.parametrize(
    ("make", "made"),
    [
        (make_plain, {one: MADE[one] for one in ("small.onnx", "code.py")}),
        pytest.param(make_all, MADE, marks=pytest.mark.slow),
    ],
    ids=["plain", "all"],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_it_makes_is_served_and_the_printed_call_is_answered(
    make: Callable[[Path], None],
    made: dict[str, tuple[str, ...]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make(tmp_path)
    capsys.readouterr()  # what transformers says while it saves
    monkeypatch.chdir(tmp_path)
    calls: dict[str, str] = {}
    for artefact, more in made.items():
        name = artefact.replace(".", "_").replace("/", "_")
        status, out, err = init(capsys, f"models/{name}", "--from", artefact, *more)
        assert (status, err) == (0, ""), out
        assert "modelyard check: no findings" in out
        calls[name] = out.splitlines()[-1]

    with running(tmp_path / "models") as server:
        for name, call in calls.items():
            answer = answered(call.replace("127.0.0.1:8000", server.http))
            assert "outputs" in answer or "choices" in answer, f"{name}: {answer}"
        assert all(row["state"] == "READY" for row in server.index())


def answered(call: str) -> dict[str, Any]:
    done = subprocess.run(
        ["bash", "-c", call], capture_output=True, text=True, check=True, timeout=120
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_the_config_is_commented_and_guesses_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "code.py").write_text(PYTHON_MODEL)
    status, out, _ = init(capsys, tmp_path / "m", "--from", tmp_path / "code.py")
    text = (tmp_path / "m" / "config.pbtxt").read_text()
    assert status == 0
    assert "types and dims are guessed" in out
    assert "# GUESSED" in text
    assert '{ name: "IN" data_type: TYPE_FP32 dims: [ -1 ] }' in text
    assert "# instance_group" in text


def test_a_pickle_is_converted_only_by_the_interpreter_that_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, folder = tmp_path / "net.joblib", tmp_path / "net"
    joblib.dump(LogisticRegression().fit(np.eye(4), [0, 1, 0, 1]), source)

    status, script, advice = init(capsys, folder, "--from", source)
    assert status == 0
    compile(script, "convert.py", "exec")
    assert "nothing here loads it" in advice
    assert not folder.exists()

    status, _, error = init(capsys, folder, "--from", source, "--convert")
    assert status == 1
    assert "--python PATH" in error

    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run(["python3", "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    status, _, error = init(capsys, folder, "--from", source, "--convert", "--python", python)
    assert status == 1
    assert error.count("\n") == 1
    assert not folder.exists()


def test_hostile_pickle_is_not_loaded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "trace"
    (tmp_path / "net.pkl").write_bytes(f"cbuiltins\nopen\n(V{trace}\nVw\ntR.".encode())
    assert init(capsys, tmp_path / "net", "--from", tmp_path / "net.pkl")[0] == 0
    assert not trace.exists()


def test_nothing_is_overwritten_and_a_free_name_is_offered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "net.onnx"
    save_unary(source)
    models = tmp_path / "models"
    assert init(capsys, models / "net", "--from", source)[0] == 0
    for there in (models / "net", models):
        status, _, error = init(capsys, there, "--from", source)
        assert status == 1
        assert f"modelyard init {models / 'net_2'} --from {source}" in error
    assert [path.name for path in models.iterdir()] == ["net"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("models/m",), "--from net.onnx"),
        (("models/m", "--from", "nowhere.onnx"), "there is no nowhere.onnx"),
        (("models/1", "--from", "net.onnx"), "cannot be a model's name"),
        (("models/m", "--from", "net.onnx", "--input", "x:FP3:1"), "types are BOOL, UINT8"),
        (("models/m", "--from", "broken.onnx"), "is not an ONNX model"),
        (("models/m", "--from", "script.pt"), "is not a PyTorch archive"),
        (("models/m", "--from", "class.py"), "has no class TritonPythonModel"),
        (("models/m", "--from", "syntax.py"), "syntax.py:1: "),
        (("models/m", "--from", "notes.txt"), "no model's file by its ending"),
        (("models/m", "--from", "net.gguf"), "GGUF, not supported yet"),
        (("models/m", "--from", "weights.safetensors"), "weights alone are no model"),
        (("models/m", "--from", "folder"), "no Hugging Face folder"),
        (("models/m", "--from", "lonely.xml"), "needs its weights in 'lonely.bin' beside it"),
        (("models/m", "--from", "other.json"), "no model's file by its ending"),
    ],
)
def test_what_cannot_be_made_is_one_line_and_leaves_nothing(
    words: tuple[str, ...],
    expected: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    save_unary(tmp_path / "net.onnx")
    for name in ("broken.onnx", "script.pt", "notes.txt", "net.gguf", "weights.safetensors"):
        (tmp_path / name).write_text("x")
    for name in ("lonely.xml", "other.json"):
        (tmp_path / name).write_text("{}")
    (tmp_path / "class.py").write_text("x = 1")
    (tmp_path / "syntax.py").write_text("def (")
    (tmp_path / "folder").mkdir()

    status, out, error = init(capsys, *words)

    assert (status, out) == (1, "")
    assert expected in error
    assert error.count("\n") == 1
    assert not list(tmp_path.glob("models/*"))
