"""Whether a PyTorch archive brings code is seen without loading it."""

import io
import json
import os
from pathlib import Path
from zipfile import ZipFile

import pytest

from server.admin.git.torch_archive import brings_code

torch = pytest.importorskip("torch")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
]


class Network(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([self.linear(x), x * 2], dim=1).relu()


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("program") / "model.pt2"
    rows = torch.export.Dim("rows")
    exported = torch.export.export(Network(), (torch.zeros(2, 4),), dynamic_shapes=({0: rows},))
    torch.export.save(exported, path)
    return path


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("true",)


def changed(program: Path, folder: Path, ending: str, content: bytes) -> Path:
    """The program with other content in the entry whose name ends so."""
    path = folder / "changed.pt2"
    with ZipFile(program) as source, ZipFile(path, "w") as target:
        for name in source.namelist():
            target.writestr(name, content if name.endswith(ending) else source.read(name))
    return path


def text_of(program: Path, ending: str) -> str:
    with ZipFile(program) as archive:
        name = next(name for name in archive.namelist() if name.endswith(ending))
        return archive.read(name).decode()


def saved(value: object) -> bytes:
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


def test_an_exported_program_brings_none(program: Path) -> None:
    assert brings_code(program) == ""


def test_pickled_samples_that_call_something_are_seen(program: Path, tmp_path: Path) -> None:
    evil = changed(program, tmp_path, "sample_inputs/model.pt", saved(Evil()))
    assert brings_code(evil) == "pickle"


def test_a_size_that_would_be_evaluated_is_seen(program: Path, tmp_path: Path) -> None:
    text = text_of(program, "models/model.json")
    said = next(one for one in text.split('"') if one.startswith("Symbol("))
    for evil in ("eval(chr(95))", "__import__", "Symbol('s1').__class__", "exec('1')"):
        made = changed(program, tmp_path, "models/model.json", text.replace(said, evil).encode())
        assert brings_code(made) == "pickle"


def test_a_call_outside_of_tensor_operations_is_seen(program: Path, tmp_path: Path) -> None:
    text = text_of(program, "models/model.json")
    evil = text.replace("torch.ops.aten.relu.default", "torch.serialization.os.system")
    assert evil != text
    assert brings_code(changed(program, tmp_path, "models/model.json", evil.encode())) == "pickle"


def test_a_weight_that_is_pickled_is_seen(program: Path, tmp_path: Path) -> None:
    config = json.loads(text_of(program, "model_weights_config.json"))
    next(iter(config["config"].values()))["use_pickle"] = True
    made = changed(program, tmp_path, "model_weights_config.json", json.dumps(config).encode())
    assert brings_code(made) == "pickle"


def test_torchscript_under_any_name_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "model.txt"
    torch.jit.trace(Network(), torch.zeros(2, 4)).save(str(path))
    assert brings_code(path) == "torchscript"


def test_what_is_no_archive_is_not_taken_for_a_program(tmp_path: Path) -> None:
    path = tmp_path / "model.pt2"
    path.write_bytes(b"\x80\x04N.")
    assert brings_code(path) == "torchscript"


def test_an_archive_with_too_many_entries_is_not_gone_through(tmp_path: Path) -> None:
    path = tmp_path / "crowd.pt2"
    with ZipFile(path, "w") as archive:
        archive.writestr("m/models/model.json", "{}")
        for number in range(34_000):
            archive.writestr(f"m/{number:0200}", b"")
    assert brings_code(path) == "pickle"


def test_a_pickle_without_end_is_not_gone_through(program: Path, tmp_path: Path) -> None:
    samples = io.BytesIO()
    with ZipFile(samples, "w") as archive:
        archive.writestr("x/data.pkl", b"\x80\x02" + b"N0" * 2**20 + b"N.")
    assert brings_code(changed(program, tmp_path, "sample_inputs/model.pt", samples.getvalue()))
