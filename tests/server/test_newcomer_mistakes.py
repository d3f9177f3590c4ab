"""What newcomers get wrong, in one table: each mistake has one readable reason with a remedy.

What is wrong with a model stands on the log, in the index and in the console; what is wrong with a
request, a command or a start is the answer to it.
"""

import json
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import onnx
import pytest
import torch
from onnx import TensorProto, helper

from repository.findings import NOTES
from support.llm_served import write_language_model
from support.newcomer import console_pages, modelyard, said_everywhere
from support.runtime import save_unary
from support.server import Server, free_ports, identity_config, running, write_identity

pytestmark = pytest.mark.slow


class Mistake(NamedTuple):
    """Something wrong in a model folder `name`, and what of the reason and its remedy is looked
    for. `make` gets the repository and the model's name."""

    name: str
    make: Callable[[Path, str], object]
    reason: str
    remedy: str


def put(root: Path, name: str, file: str, content: str | bytes = "x", config: str = "") -> Path:
    path = root / name / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    if config:
        (root / name / "config.pbtxt").write_text(config)
    return path


def file(name: str, content: str | bytes = "x", config: str = "") -> Callable[[Path, str], object]:
    return lambda root, model: put(root, model, f"1/{name}", content, config)


def graph(op: str = "Relu", opset: int = 18, domain: str = "", config: str = "") -> Any:
    def make(root: Path, model: str) -> None:
        tensors = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", 4]) for n in "xy"]
        node = helper.make_node(op, ["x"], ["y"], domain=domain)
        made = helper.make_graph([node], "g", tensors[:1], tensors[1:])
        opsets = [helper.make_opsetid("", opset), helper.make_opsetid("own", 1)]
        content = helper.make_model(made, opset_imports=opsets, ir_version=10)
        put(root, model, "1/model.onnx", content.SerializeToString(), config)

    return make


def truncated(root: Path, model: str) -> None:
    path = put(root, model, "1/model.onnx")
    save_unary(path)
    path.write_bytes(path.read_bytes()[:-20])


def state_dict(root: Path, model: str) -> None:
    torch.save(torch.nn.Linear(2, 2).state_dict(), put(root, model, "1/model.pt"))


def torchscript(root: Path, model: str) -> None:
    with warnings.catch_warnings(action="ignore"):
        traced = torch.jit.trace(torch.nn.Linear(2, 2), torch.zeros(1, 2))
        traced.save(put(root, model, "1/model.pt"))


def link_out(root: Path, model: str) -> None:
    outside = root.parent / "elsewhere.onnx"
    outside.write_bytes(b"x")
    folder = root / model / "1"
    folder.mkdir(parents=True)
    (folder / "model.onnx").symlink_to(outside)


def too_large(root: Path, model: str) -> None:
    write_language_model(root, model, 'parameters { key: "memory_budget" value { '
                         'string_value: "1" } }')  # fmt: skip


MODELS = (
    Mistake("pkl", file("model.pkl"), "a pickled Python object", "modelyard init"),
    Mistake("joblib", file("model.joblib"), "pickled by joblib", "modelyard init"),
    Mistake("keras", file("net.keras"), "a Keras model, not", "python -c"),
    Mistake("h5", file("net.h5"), "a Keras model (HDF5)", "python -c"),
    Mistake("tflite", file("net.tflite"), "a LiteRT model", "rename it to model.tflite"),
    Mistake("openvino", file("net.xml"), "an OpenVINO model", "rename it to model.xml"),
    Mistake("gguf", file("net.gguf"), "GGUF", "config.json, *.safetensors and tokenizer.json"),
    Mistake("plan", file("net.plan"), "a TensorRT engine", "the ONNX model there"),
    Mistake("cbm", file("net.cbm"), "a CatBoost model", "save_model('model.onnx'"),
    Mistake("bin", file("pytorch_model.bin"), "a file of weights", "save_pretrained"),
    Mistake("weights", file("net.safetensors"), "the weights of a model", "whole Hugging Face"),
    Mistake("renamed", file("resnet.onnx"), "resnet.onnx is an ONNX model", "rename it to"),
    Mistake("opset", graph(opset=99), "model.onnx has opset 99", "export it with opset"),
    Mistake("custom", graph("Mine", domain="own"), "own:Mine", "op_library_filename"),
    Mistake("truncated", truncated, "is not an ONNX model, or is cut short", "cut short"),
    Mistake("state_dict", state_dict, "holds no TorchScript", "torch.jit.save"),
    Mistake("script", torchscript, "neither types nor shapes", "max_batch_size: 8 input ["),
    Mistake("syntax", file("model.py", "def ("), "SyntaxError", "syntax/1/model.py(1)"),
    Mistake("classless", file("model.py", "x = 1"), "no class 'TritonPythonModel'", "a class of"),
    Mistake("imports", file("model.py", "import nowhere"), "'nowhere'", "install it for the serv"),
    Mistake(
        "loose",
        lambda root, model: put(root, model, "net.onnx"),
        "has no version folder",
        "to 'loose/1/model.onnx'",
    ),
    Mistake(
        "stray.onnx",
        lambda root, model: (root / model).write_text("x"),
        "in the repository's root",
        "move 'stray.onnx' to 'stray/1/model.onnx'",
    ),
    Mistake(
        "notes",
        lambda root, model: put(root, model, "README.md"),
        "no config.pbtxt and no version",
        "put the model in 'notes/1/'",
    ),
    Mistake(
        "field", graph(config="max_batch_sice: 4"), "unknown field", "did you mean max_batch_size"
    ),
    Mistake(
        "unserved",
        graph(config="model_repository_agents { agents { name: 'checksum' } }"),
        "model_repository_agents is not offered",
        "leave it out; repositories can check signatures",
    ),
    Mistake("backend", file("m", config='backend: "tensorflo"'), "'tensorflo'", "this server has"),
    Mistake(
        "dtype",
        graph(config='input { name: "x" data_type: TYPE_INT64 dims: 4 }'),
        "data_type is TYPE_INT64",
        "but model.onnx has FP32",
    ),
    Mistake(
        "tensor",
        graph(config='input { name: "z" data_type: TYPE_FP32 dims: 4 }'),
        "input 'z' is not in model.onnx",
        "its inputs are: x (FP32",
    ),
    Mistake(
        "name", graph(config='name: "other"'), "name must be the folder's name 'name'", "or absent"
    ),
    Mistake("link", link_out, "a link out of the repository", "copy the files in"),
    Mistake("memory", too_large, "memory budget of 0 MiB is too small", "give at least"),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("newcomer")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    repository = folder / "models"
    repository.mkdir()
    limits = 'instance_group { host_policy: "near" }'
    write_identity(repository, "echo", config=identity_config("echo", extra=limits))
    for mistake in MODELS:
        mistake.make(repository, mistake.name)
    port = free_ports(1)[0]
    with running(
        repository,
        wait=False,
        allow_admin=True,
        admin_port=port,
        state_dir=folder / "state",
    ) as one:
        one.wait_for(lambda: "admin  " in one.log(), "the control API")
        names = {mistake.name for mistake in MODELS}
        one.wait_for(lambda: names <= failed(folder), "every mistake to be recorded")
        yield one


@pytest.fixture(scope="module")
def pages(server: Server, folder: Path) -> Callable[[str], str]:
    return console_pages(server, folder / "state")


def failed(folder: Path) -> set[str]:
    ran = modelyard("status", "--json", "--state-dir", str(folder / "state"))
    versions = json.loads(ran.stdout or '{"versions": []}')["versions"]
    return {one["model"] for one in versions if one["state"] == "FAILED"}


def test_there_are_thirty_and_more() -> None:
    assert len(MODELS) >= 30


@pytest.mark.parametrize("mistake", MODELS, ids=lambda one: one.name)
def test_a_mistake_in_a_model_is_on_the_log_in_the_index_and_in_the_console(
    mistake: Mistake, server: Server, pages: Callable[[str], str]
) -> None:
    said_everywhere(server, pages, mistake.name, mistake.reason, mistake.remedy)


def test_what_a_config_gives_without_effect_is_named_once_on_the_log(server: Server) -> None:
    lines = [one for one in server.log().splitlines() if "host_policy" in one]
    (line,) = lines
    assert " INFO " in line
    assert "echo 1: config.pbtxt: instance_group[0].host_policy has no effect here: it" in line
    assert "taskset or numactl" in line


def test_the_check_finds_every_mistake_without_running_anything(
    server: Server, folder: Path
) -> None:
    ran = modelyard("check", "--json", str(folder / "models"))
    assert ran.returncode == 1
    found = {
        Path(one["path"]).relative_to(folder / "models").parts[0]
        for one in json.loads(ran.stdout)
        if one["code"] not in NOTES
    }
    assert {mistake.name for mistake in MODELS} <= found
    assert "echo" not in found


BODY = {"name": "INPUT0", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}

REQUESTS = {
    "wrong_type": ("echo", {"inputs": [{**BODY, "datatype": "INT64"}]}, "FP32"),
    "wrong_name": ("echo", {"inputs": [{**BODY, "name": "input"}]}, "'input'"),
    "wrong_shape": ("echo", {"inputs": [{**BODY, "shape": [1, 3]}]}, "3"),
    "wrong_rank": ("echo", {"inputs": [{**BODY, "shape": [2]}]}, "Expected [-1,-1], got [2]"),
    "no_input": ("echo", {"inputs": []}, "expected 1 inputs but got 0"),
    "no_batch": ("echo", {"inputs": [{**BODY, "shape": [9, 1], "data": [1] * 9}]}, "<= 8"),
    "unknown_model": ("ecco", {"inputs": [BODY]}, "unknown model: 'ecco'"),
    "failed_model": ("gguf", {"inputs": [BODY]}, "has no available versions"),
}


@pytest.mark.parametrize(("model", "body", "expected"), REQUESTS.values(), ids=REQUESTS)
def test_a_mistake_in_a_request_is_answered_with_what_was_expected(
    model: str, body: Any, expected: str, server: Server
) -> None:
    status, raw = server.post(f"/v2/models/{model}/infer", body)
    said = json.loads(raw)["error"]
    assert status >= 400
    assert expected in said
    assert not re.search(r"\w::\w|Traceback", said)


COMMANDS: dict[str, tuple[tuple[str, ...], str, int]] = {
    "bad_flag": (("serve", "--htp-port", "1"), "did you mean '--http-port'", 2),
    "bad_command": (("srve",), "did you mean 'serve'", 2),
    "bad_value": (("serve", "--http-port", "99999"), "from 0 to 65535", 2),
    "no_argument": (("serve", "models"), "no argument 'models'", 2),
    "missing_folder": (("serve", "--model-repository", "gone"), "name another with --model-rep", 2),
    "itself_a_model": (("serve", "--model-repository", "models/m"), "is itself a model", 2),
    "state_is_a_file": (("serve", "--state-dir", "file"), "name another with --state-dir", 2),
    "config_missing": (("serve", "--config", "gone.toml"), "gone.toml", 2),
    "no_server": (("status",), "start one with `modelyard serve`", 1),
    "init_twice": (("init", "models/m", "--from", "file"), "nothing is overwritten", 1),
    "check_nothing": (("check", "gone"), "name a repository or a model's folder", 2),
}


@pytest.mark.parametrize(("words", "expected", "status"), COMMANDS.values(), ids=COMMANDS)
def test_a_mistake_in_a_command_is_one_line_with_a_remedy(
    words: tuple[str, ...], expected: str, status: int, tmp_path: Path
) -> None:
    put(tmp_path / "models", "m", "1/model.onnx")
    (tmp_path / "file").write_text("x")
    ran = modelyard(*words, cwd=tmp_path)
    assert (ran.returncode, ran.stdout) == (status, "")
    assert expected in ran.stderr
    assert ran.stderr.count("\n") == 1


def test_a_repository_without_models_says_how_to_make_one(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        server.wait_for(lambda: "no models" in server.log(), "the table of models")
        assert "`modelyard init` makes one from a file" in server.log()


def test_a_file_in_the_root_keeps_no_server_from_being_ready(tmp_path: Path) -> None:
    write_identity(tmp_path, "echo")
    (tmp_path / "net.onnx").write_text("x")
    with running(tmp_path, exit_on_error=True) as server:
        states = {row["name"]: row["state"] for row in server.index()}
    assert states == {"echo": "READY", "net.onnx": "UNAVAILABLE"}


def test_the_table_of_graphs_is_valid_but_for_the_mistake(tmp_path: Path) -> None:
    graph()(tmp_path, "fine")
    onnx.checker.check_model(onnx.load(tmp_path / "fine" / "1" / "model.onnx"))
