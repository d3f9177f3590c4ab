"""Whether a PyTorch archive brings code is seen without loading it."""

import asyncio
import contextlib
import io
import json
import os
import pickle
import struct
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple
from zipfile import ZipFile

import pytest

from backends.errors import LoadFailed
from backends.pytorch.archive import brings_code
from repository.model import ModelVersion
from server.fleet.checks.check import Checker
from support.runtime import make_version

torch = pytest.importorskip("torch")

from support import hostile_programs as hostile  # noqa: E402 - after torch is known to be there

LEAF = hostile.LEAF

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("program") / "model.pt2"
    hostile.save_program(path)
    return path


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("true",)


def changed(program: Path, folder: Path, ending: str, content: bytes) -> Path:
    """The program with other content in the entry whose name ends so."""
    path = folder / "changed.pt2"
    hostile.save_changed(program, path, ending, lambda _: content)
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


LOAD = """
import os, sys, torch
for folder in sys.argv[1:]:
    if child := os.fork():
        os.waitpid(child, 0)
        continue
    sys.path.insert(0, folder)
    torch.export.load(folder + "/m/1/model.pt2").module()(torch.ones(2, 4))
    os._exit(0)
"""


class HostileProgram(NamedTuple):
    """What is found in a program, and whether it ran: by our check, and by torch itself."""

    found: str
    ran_when_checked: bool
    ran_when_loaded: bool


@pytest.fixture(scope="module")
def hostile_programs(
    program: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, HostileProgram]:
    """By the way in which they run something."""
    folders = {way: tmp_path_factory.mktemp("hostile") for way in hostile.WAYS}
    versions = [make_version(folder, 'backend: "pytorch"') for folder in folders.values()]
    for (way, folder), version in zip(folders.items(), versions, strict=True):
        hostile.save_hostile(way, program, version.path / "model.pt2", folder / "marker")
    found = [brings_code(version.path / "model.pt2") for version in versions]
    asyncio.run(checked(versions))
    ran = [(folder / "marker").exists() for folder in folders.values()]

    command = [sys.executable, "-W", "ignore", "-c", LOAD, *map(str, folders.values())]
    subprocess.run(command, capture_output=True, timeout=300)
    loaded = [(folder / "marker").exists() for folder in folders.values()]
    return dict(zip(folders, map(HostileProgram, found, ran, loaded), strict=True))


@pytest.mark.parametrize("way", hostile.WAYS)
def test_a_program_that_runs_something_when_it_is_loaded_is_seen_and_not_run(
    hostile_programs: dict[str, HostileProgram], way: str
) -> None:
    program = hostile_programs[way]
    assert program.found == "pickle"
    assert not program.ran_when_checked
    assert program.ran_when_loaded, "the archive is not hostile, and this test shows nothing"


async def checked(versions: Iterable[ModelVersion]) -> None:
    checker = Checker()
    try:
        for version in versions:
            with contextlib.suppress(LoadFailed):
                await checker.complete(version)
    finally:
        await checker.close()


@pytest.mark.parametrize(
    "spec",
    [
        {"type": "collections.namedtuple", "context": "x.Y", "children_spec": []},
        {"type": "collections.deque", "context": "null", "children_spec": []},
        {"type": "builtins.tuple", "context": '{"__enum__": 1}', "children_spec": []},
        {"type": "builtins.dict", "context": '[{"fqn": "os:environ"}]', "children_spec": [LEAF]},
        {"type": "builtins.dict", "context": '["a", "b"]', "children_spec": [LEAF]},
        {"type": "builtins.dict", "context": ["a"], "children_spec": [LEAF]},
        {"type": None, "context": "null", "children_spec": []},
    ],
)
def test_a_tree_of_anything_but_tuples_lists_and_dicts_is_seen(
    program: Path, tmp_path: Path, spec: dict[str, object]
) -> None:
    parsed = json.loads(text_of(program, "models/model.json"))
    parsed["graph_module"]["module_call_graph"][0]["signature"]["out_spec"] = json.dumps([1, spec])
    text = json.dumps(parsed).encode()
    assert brings_code(changed(program, tmp_path, "models/model.json", text)) == "pickle"


def test_an_operator_that_reads_or_writes_files_is_seen(program: Path, tmp_path: Path) -> None:
    text = text_of(program, "models/model.json")
    for name in ("from_file.default", "from_file.out", "save.default", "relu.__class__"):
        made = text.replace("aten.relu.default", f"aten.{name}").encode()
        assert brings_code(changed(program, tmp_path, "models/model.json", made)) == "pickle"


def test_an_archive_that_another_reader_reads_otherwise_is_seen(
    program: Path, tmp_path: Path
) -> None:
    content = program.read_bytes()
    end = content.rindex(b"PK\x05\x06")
    (start,) = struct.unpack_from("<L", content, end + 16)
    shifted = content[:start] + b"directory of another" + content[start:]
    path = tmp_path / "model.pt2"
    for made in (shifted, b"#" + content, content + b"#", content[:-2] + b"\1\0#"):
        path.write_bytes(made)
        assert brings_code(path) == "pickle"


def test_a_directory_that_is_not_the_one_pointed_to_is_seen(program: Path, tmp_path: Path) -> None:
    """torch writes a second record of the directory, as for large archives, and a locator."""
    content = bytearray(program.read_bytes())
    locator = content.rindex(b"PK\x06\x07")
    (record,) = struct.unpack_from("<Q", content, locator + 8)
    assert content[record : record + 4] == b"PK\x06\x06"
    struct.pack_into("<Q", content, locator + 8, record - 100)
    path = tmp_path / "model.pt2"
    path.write_bytes(content)
    assert brings_code(path) == "pickle"


class Everything(torch.nn.Module):
    """Nested inputs and outputs, keywords, branches, sizes that are compared."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(4)
        self.register_buffer("scale", torch.ones(4))

    def forward(self, x: dict[str, torch.Tensor], *, more: list[torch.Tensor]) -> object:
        y = self.norm(x["left side"]) * self.scale + more[0]
        if y.shape[0] > 3:
            y = torch.cond(y.sum() > 0, lambda y: y.sin() + 1, lambda y: y.cos(), (y,))
        return {"last hidden": y, "pair": (y.softmax(-1), [torch.einsum("bi,bj->ij", y, y)])}


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_what_torch_writes_of_an_honest_model_brings_none(tmp_path: Path) -> None:
    rows = torch.export.Dim.AUTO
    exported = torch.export.export(
        Everything(),
        ({"left side": torch.zeros(5, 4)},),
        {"more": [torch.zeros(5, 4)]},
        dynamic_shapes={"x": {"left side": {0: rows}}, "more": [{0: rows}]},
    )
    for number, one in enumerate((exported, exported.run_decompositions())):
        path = tmp_path / f"{number}.pt2"
        torch.export.save(one, path)
        assert "size()" in text_of(path, "models/model.json")
        assert brings_code(path) == ""


def test_pickled_samples_that_call_something_are_seen(program: Path, tmp_path: Path) -> None:
    evil = changed(program, tmp_path, "sample_inputs/model.pt", saved(Evil()))
    assert brings_code(evil) == "pickle"


def test_pickled_samples_that_torch_finds_in_capitals_are_seen(
    program: Path, tmp_path: Path
) -> None:
    harmless, evil = io.BytesIO(saved((torch.ones(2),))), io.BytesIO()
    with ZipFile(harmless) as source, ZipFile(evil, "w") as made:
        made.writestr("archive/DATA.PKL", pickle.dumps(Evil(), 2))
        for name in source.namelist():
            made.writestr(name.replace("/data.pkl", "/b/data.pkl"), source.read(name))
    evil.seek(0)
    assert torch.load(evil, weights_only=False) == 0  # Evil.__reduce__ was called
    path = changed(program, tmp_path, "sample_inputs/model.pt", evil.getvalue())
    assert brings_code(path) == "pickle"


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
    torch.jit.trace(hostile.Network(), torch.zeros(2, 4)).save(str(path))
    assert brings_code(path) == "torchscript"


def test_an_archive_whose_names_depend_on_the_reader_is_seen(program: Path, tmp_path: Path) -> None:
    """zipfile ends a name at its first NUL."""
    path = tmp_path / "model.pt2"
    hostile.save_changed(program, path, "archive_version", lambda content: content)
    content = path.read_bytes()
    path.write_bytes(content.replace(b"/byteorder", b"/version\0r"))
    assert brings_code(path) == "pickle"


@pytest.mark.parametrize(
    "text",
    [
        b'{"config": []}',
        b'{"config": {"a": 1}}',
        b'{"config": {"a": {"path_name": "weight_0"}}}',
        b"[" * 100_000,
    ],
)
def test_weights_of_another_form_are_seen(program: Path, tmp_path: Path, text: bytes) -> None:
    assert brings_code(changed(program, tmp_path, "model_weights_config.json", text)) == "pickle"


def test_a_guard_nested_too_deeply_is_seen(program: Path, tmp_path: Path) -> None:
    parsed = json.loads(text_of(program, "models/model.json"))
    for guard in ("-" * 4000 + "1", "1+" * 1_000_000 + "1", "'a' # b", '"a"'):
        parsed["guards_code"] = [guard]
        text = json.dumps(parsed).encode()
        assert brings_code(changed(program, tmp_path, "models/model.json", text)) == "pickle"


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
