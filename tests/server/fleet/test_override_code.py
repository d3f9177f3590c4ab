"""Overrides that bring code: refused unless the operator lets load requests bring it."""

import io
import json
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

import pytest

from repository.errors import ConfigError
from repository.folders.override import parse_json
from server.errors import Internal, UnknownModel
from server.overrides import Override, of_json
from support.explicit_loads import explicit, kept
from support.fleet import (
    fleet_over,
    numbers,
    write_onnx_model,
)
from support.overrides import ECHO, config
from support.server import write_identity

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "models"
    folder.mkdir()
    yield folder
    assert not kept(tmp_path / "models-state"), "files of overrides were left behind"


# code


def guarded(root: Path) -> dict[str, object]:
    return explicit(root, allow_code_in_load_requests=False)


ONNX_WITH_OPERATORS = {
    "backend": "onnxruntime",
    "model_operations": {"op_library_filename": ["ops.txt"]},
}


async def test_a_load_request_brings_no_code_unless_the_operator_lets_it(root: Path) -> None:
    python = {"1/model.py": ECHO.encode()}
    disguised = config(backend="python", default_model_filename="labels.txt")
    onnx = {"1/model.onnx": written_onnx(root), "1/ops.txt": b"\x7fELF"}
    script = {"1/model.pt": b"PK\x03\x04 no program"}
    async with fleet_over(root, **guarded(root)) as fleet:
        for one in (
            Override(config(backend="python"), python),
            Override("{}", python),
            Override(disguised, {"1/labels.txt": ECHO.encode()}),
            Override(json.dumps(ONNX_WITH_OPERATORS), onnx),
            Override('{"platform": "pytorch_libtorch"}', script),
        ):
            with pytest.raises(Internal, match=r"run as code .* --allow-code-in-load-requests"):
                await fleet.load("new", one)
        with pytest.raises(UnknownModel):
            fleet.get("new", None)
        await fleet.load("new", Override("{}", {"1/model.onnx": onnx["1/model.onnx"]}))
        assert numbers(fleet) == [1]


async def test_a_config_makes_no_code_of_a_folders_other_files(root: Path) -> None:
    write_identity(root, "m", 1)
    (root / "m" / "1" / "labels.txt").write_text(ECHO)
    async with fleet_over(root, **guarded(root)) as fleet:
        with pytest.raises(Internal, match=r"makes 'labels\.txt' run as code \(format python\)"):
            await fleet.load(
                "m", Override(config(backend="python", default_model_filename="labels.txt"))
            )
        await fleet.load("m", Override(config(max_batch_size=3)))
        assert numbers(fleet) == [1]


async def test_a_config_for_a_folder_that_runs_the_same_code_anyway_is_taken(root: Path) -> None:
    version = root / "m" / "1"
    version.mkdir(parents=True)
    (version / "model.py").write_text(ECHO)
    (root / "m" / "config.pbtxt").write_text(
        'backend: "python" max_batch_size: 8 '
        'input { name: "INPUT0" data_type: TYPE_FP32 dims: -1 } '
        'output { name: "OUTPUT0" data_type: TYPE_FP32 dims: -1 }'
    )
    async with fleet_over(root, **guarded(root)) as fleet:
        await fleet.load("m", Override(config(backend="python", max_batch_size=3)))
        assert fleet.get("m", None).version.config.max_batch_size == 3


async def test_files_of_which_nobody_can_tell_in_time_what_they_run_are_not_loaded(
    root: Path,
) -> None:
    """They are looked at in a process that may die of it: 200 KB held this one up for minutes."""
    program = io.BytesIO()
    with ZipFile(program, "w", ZIP_DEFLATED) as archive:
        archive.writestr("m/models/model.json", '{"a": [' + "[]," * 2_000_000 + "[]]}")
    override = Override('{"backend": "pytorch"}', {"1/model.pt2": program.getvalue()})
    async with fleet_over(root, **guarded(root), check_timeout_secs=0.5) as fleet:
        with pytest.raises(
            Internal, match=r"cannot be determined: .* longer than 0\.5 s while reading"
        ):
            await fleet.load("m", override)


def written_onnx(root: Path) -> bytes:
    elsewhere = root.parent / "elsewhere"
    write_onnx_model(elsewhere, 1)
    return next(elsewhere.rglob("model.onnx")).read_bytes()


def test_a_lone_object_stands_for_a_list_of_one_and_a_slash_before_a_path_for_none() -> None:
    """As Triton's parser and its joining of paths take them."""
    lone = (
        '{"backend": "identity", "input": {"name": "A", "dims": 4}, "instance_group": {"count": 2}}'
    )
    config = parse_json(lone)
    assert [list(one.dims) for one in config.input] == [[4]]
    assert config.instance_group[0].count == 2
    with pytest.raises(ConfigError, match="config override cannot be read"):
        parse_json('{"input": {"name": "A", "dimz": 4}}')
    given = {"config": "{}", "file:/1/model.py": "eA=="}
    override = of_json(given)
    assert override is not None
    assert override.files == {"1/model.py": b"x"}
