"""Explicit loads that bring a config, or all files, of their own."""

import asyncio
import base64
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tritonclient.grpc import service_pb2 as pb

from repository.code_use import CodeUse
from repository.folders.watch import WatchedRepository
from repository.model import ModelVersion, Snapshot
from schedulers.policy.cores import CoreTokens
from server.errors import Internal, InvalidRequest, ModelLoadFailed
from server.fleet.checks.check import Checker
from server.fleet.fleet import Fleet
from server.fleet.loading import VersionLoader
from server.fleet.override_files import MOST_FILES, OverrideFiles
from server.overrides import Override, of_json, of_message
from server.served_version import ServingState
from server.settings.table import Settings
from support.explicit_loads import explicit, kept
from support.fleet import (
    eventually,
    fleet_over,
    look_again,
    numbers,
    reason,
    states,
    submit,
    write_onnx_model,
)
from support.overrides import ECHO, config
from support.server import identity_config, write_identity

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def no_code(_: ModelVersion) -> tuple[CodeUse, ...]:
    return ()


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "models"
    folder.mkdir()
    yield folder
    assert not kept(tmp_path / "models-state"), "files of overrides were left behind"


async def test_config_override_replaces_the_files_config_until_the_next_load(root: Path) -> None:
    write_identity(root, "m", 1)
    async with fleet_over(root, **explicit(root)) as fleet:
        await fleet.load("m", Override(config(max_batch_size=3)))
        assert fleet.get("m", None).version.config.max_batch_size == 3
        await fleet.load("m")
        assert fleet.get("m", None).version.config.max_batch_size == 8


async def test_the_same_override_again_changes_nothing(root: Path) -> None:
    write_identity(root, "m", 1)
    override = Override(config(), {"1/file": b"content"})
    async with fleet_over(root, **explicit(root)) as fleet:
        for one in (Override(config(max_batch_size=3)), override):
            await fleet.load("m", one)
            served = fleet.get("m", None)
            await fleet.load("m", one)
            assert fleet.get("m", None) is served


async def test_auto_complete_fills_in_what_the_override_leaves_out(root: Path) -> None:
    write_onnx_model(root, 1)
    async with fleet_over(root, **explicit(root)) as fleet:
        await fleet.load("m", Override('{"backend": "onnxruntime", "maxBatchSize": "2"}'))
        found = fleet.get("m", None).version.config
        assert (found.max_batch_size, found.input[0].name) == (2, "X")


async def test_override_stands_in_for_a_config_that_cannot_be_read(root: Path) -> None:
    write_identity(root, "m", 1, config="nonsense {")
    async with fleet_over(root, **explicit(root)) as fleet:
        with pytest.raises(Internal, match=r"^failed to load 'm', .*config.pbtxt:1:"):
            await fleet.load("m")
        await fleet.load("m", Override(config()))
        assert states(fleet) == {1: ServingState.READY}


async def test_files_replace_the_whole_folder(root: Path) -> None:
    write_identity(root, "m", 1, 2)
    async with fleet_over(root, **explicit(root)) as fleet:
        await fleet.load("m")
        assert numbers(fleet) == [1, 2]
        await fleet.load("m", Override(config(), {"7/any": b"x"}))
        assert numbers(fleet) == [7]
        await fleet.load("m")
        assert numbers(fleet) == [1, 2]
        await eventually(lambda: not kept(root.parent / "models-state"))


async def test_files_may_bring_a_model_the_repository_does_not_have(root: Path) -> None:
    files = {"1/model.py": ECHO.encode()}
    async with fleet_over(root, **explicit(root)) as fleet:
        await fleet.load("new", Override(config(backend="python"), files))
        response = await submit(fleet.get("new", 1)).one()
        assert response.outputs["OUTPUT0"].tolist() == [[2.0, 2.0, 2.0, 2.0]]
        with pytest.raises(
            Internal,
            match=r"^failed to load 'new', failed to poll from model repository: no such model",
        ):
            await fleet.load("new")
        assert numbers(fleet) == [1]
        await fleet.unload("new", False)
        await eventually(lambda: not kept(root.parent / "models-state"))


async def test_files_stay_while_a_request_is_inside(root: Path) -> None:
    slow = config(parameters={"execute_delay_ms": {"string_value": "2000"}})
    async with fleet_over(root, **explicit(root)) as fleet:
        await fleet.load("m", Override(slow, {"1/any": b"x"}))
        reply = submit(fleet.get("m", 1))
        await fleet.unload("m", False)
        assert kept(root.parent / "models-state")
        await reply.one()
        await eventually(lambda: not kept(root.parent / "models-state"))


async def test_failed_override_leaves_the_old_version_serving(root: Path) -> None:
    write_onnx_model(root, 1)
    broken = Override('{"backend": "onnxruntime"}', {"1/model.onnx": b"not a model"})
    async with fleet_over(root, **explicit(root)) as fleet:
        await fleet.load("m")
        with pytest.raises(
            ModelLoadFailed, match=r"version 1 is at UNAVAILABLE state: Internal: .*onnx"
        ):
            await fleet.load("m", broken)
        assert states(fleet) == {1: ServingState.READY}
        assert "serving what was loaded before" in reason(fleet, 1)


async def test_python_error_in_an_override_names_file_line_and_exception(root: Path) -> None:
    files = {"1/model.py": b"import math\nraise RuntimeError('no weights')\n"}
    async with fleet_over(root, **explicit(root)) as fleet:
        with pytest.raises(
            ModelLoadFailed, match=r"RuntimeError: no weights\s+At:\s+m/1/model\.py\(2\)"
        ):
            await fleet.load("m", Override(config(backend="python"), files))
        assert "no weights" in reason(fleet, 1)


REFUSED = [
    (Override("{"), r"config override cannot be read: .*line 1"),
    (Override("[]"), r"config override is not a JSON object"),
    (Override('{"max_batch_sise": 1}'), r"no field named \"max_batch_sise\".*'maxBatchSize'"),
    (Override('{"max_batch_size": "many"}'), r"max_batch_size field: .*'many'"),
    (Override('{"max_batch_size": -1}'), r"config E103 max_batch_size must be ≥ 0, got -1"),
    (Override('{"name": "other"}'), r"folder's name 'm' or absent, got 'other'"),
    (Override("", {"1/model.py": b""}), r"need a 'config' parameter"),
    (Override("{}", {"../m/1/model.py": b""}), r"'\.\./m/1/model\.py' leaves the model's folder"),
    (Override("{}", {"/etc/x": b""}), r"'/etc/x' leaves"),
    (Override("{}", {"1//x": b""}), r"'1//x' leaves"),
    (Override("{}", {"1/./x": b""}), r"leaves"),
    (Override("{}", {"1\\x": b""}), r"leaves"),
    (Override("{}", {"1/x\0": b""}), r"leaves"),
    (Override("{}", {"": b""}), r"leaves"),
    (Override("{}", {"1/a": b"", "1/a/b": b""}), r"Not a directory|File exists"),
    (Override("{}", {"1/" + "x" * 300: b""}), r"File name too long"),
    (Override("{}", {f"1/{n}": b"" for n in range(MOST_FILES + 1)}), r"1001 override files"),
    (Override(config(), {"labels.txt": b""}), r"at least one version must be available"),
    (Override(config(version_policy={"specific": {"versions": [9]}})), r"at least one version"),
]


@pytest.mark.parametrize(("override", "text"), REFUSED, ids=[text for _, text in REFUSED])
async def test_override_that_cannot_be_followed_is_refused_with_the_reason(
    root: Path, override: Override, text: str
) -> None:
    write_identity(root, "m", 1)
    async with fleet_over(root, **explicit(root)) as fleet:
        await fleet.load("m")
        served = fleet.get("m", 1)
        with pytest.raises(Internal, match=f"^failed to load 'm', (?s:.*)({text})"):
            await fleet.load("m", override)
        assert fleet.get("m", 1) is served
        assert not kept(root.parent / "models-state")


async def test_files_of_a_killed_server_are_removed_and_those_of_a_living_one_stay(
    tmp_path: Path,
) -> None:
    living = OverrideFiles(tmp_path, ())
    folder = await asyncio.to_thread(living.read, "m", Override(config(), {"1/x": b""}), no_code)
    left = tmp_path / "overrides" / "123-left" / "tmp" / "m"
    left.mkdir(parents=True)
    OverrideFiles(tmp_path, ()).sweep()
    assert folder.folder.is_dir()
    assert not left.exists()
    await living.close()
    assert not list((tmp_path / "overrides").iterdir())


async def test_private_folder_is_private(tmp_path: Path) -> None:
    files = OverrideFiles(tmp_path, ())
    folder = await asyncio.to_thread(files.read, "m", Override(config(), {"1/x": b""}), no_code)
    assert folder.repository.parent.stat().st_mode & 0o077 == 0
    await files.close()


def test_rest_parameters_are_decoded_and_anything_else_is_named() -> None:
    content = base64.b64encode(b"\0\xff").decode()
    made = of_json({"config": "{}", "file:1/model.onnx": content})
    assert made == Override("{}", {"1/model.onnx": b"\0\xff"})
    assert of_json({}) is None
    with pytest.raises(InvalidRequest, match=r"unrecognized load parameter 'confg'\."):
        of_json({"confg": "{}"})
    with pytest.raises(Internal, match=r"Unable to parse 'config': .* non-string as string"):
        of_json({"config": {}})
    with pytest.raises(InvalidRequest, match="'file:1/x' is not base64"):
        of_json({"config": "{}", "file:1/x": "%"})


def test_grpc_parameters_are_decoded_and_anything_else_is_named() -> None:
    parameter = pb.ModelRepositoryParameter
    given = {
        "config": parameter(string_param="{}"),
        "file:1/model.onnx": parameter(bytes_param=b"\0\xff"),
    }
    assert of_message(given) == Override("{}", {"1/model.onnx": b"\0\xff"})
    assert of_message({}) is None
    for name, wrong, text in [
        ("config", parameter(bytes_param=b""), "'config', expected string_param."),
        ("file:x", parameter(string_param=""), "'file:x', expected bytes_param."),
        ("confg", parameter(string_param=""), "unrecognized load parameter 'confg'."),
    ]:
        with pytest.raises(InvalidRequest, match=text):
            of_message({name: wrong})


async def test_load_that_fails_once_is_tried_again(root: Path) -> None:
    write_onnx_model(root, 1)
    artefact = root / "m" / "1" / "model.onnx"
    good = artefact.read_bytes()
    artefact.write_bytes(b"not a model")
    async with fleet_over(root, **explicit(root, model_load_retry_count=100_000)) as fleet:
        loading = asyncio.create_task(fleet.load("m"))
        await eventually(lambda: states(fleet) == {1: ServingState.LOADING})
        artefact.write_bytes(good)
        await loading
        assert states(fleet) == {1: ServingState.READY}


async def test_load_that_takes_too_long_says_so(root: Path) -> None:
    files = {"1/model.py": b"import time\ntime.sleep(1.5)\n" + ECHO.encode()}
    async with fleet_over(root, **explicit(root, model_load_timeout_secs=0.3)) as fleet:
        with pytest.raises(ModelLoadFailed, match=r"took longer to load than .*secs=0\.3 allows"):
            await fleet.load("m", Override(config(backend="python"), files))


class Stuck(WatchedRepository):
    """A repository on a disk that does not answer."""

    answers = threading.Event()

    def snapshot(self) -> Snapshot:
        self.answers.wait(60)
        return super().snapshot()


async def test_load_from_a_disk_that_does_not_answer_has_a_deadline(root: Path) -> None:
    settings = Settings(
        model_repository=(root,),
        model_control_mode="explicit",
        model_load_timeout_secs=0.1,
        check_timeout_secs=0.1,
        state_dir=root.parent / "models-state",
    )
    checker = Checker()
    repository = Stuck((root,))
    fleet = Fleet(VersionLoader(checker, CoreTokens(1), settings), repository, settings)
    try:
        with pytest.raises(ModelLoadFailed, match=r"load of 'm' is not finished after 0\.2 s"):
            await fleet.load("m")
    finally:
        repository.answers.set()
        await fleet.close(0)
        await checker.close()


async def hammer(fleet: Fleet, seed: int) -> int:
    """One of many clients that cannot agree; how many of its calls were refused."""
    draw = random.Random(seed)
    refused = 0
    for _ in range(5):
        choice = draw.randrange(4)
        try:
            if choice == 0:
                await fleet.unload("m", False)
            elif choice == 1:
                await fleet.load("m")
            elif choice == 2:
                await fleet.load("m", Override(config(max_batch_size=draw.randint(1, 8))))
            else:
                await fleet.load("m", Override(config(), {f"{draw.randint(1, 3)}/x": b"x"}))
        except (Internal, ModelLoadFailed):
            refused += 1
    return refused


async def test_twenty_clients_that_load_and_unload_the_same_model_converge(root: Path) -> None:
    write_identity(root, "m", 1, 2)
    async with fleet_over(root, **explicit(root)) as fleet:
        async with asyncio.timeout(300):
            refused = await asyncio.gather(*(hammer(fleet, seed) for seed in range(20)))
            await fleet.load("m")
        assert sum(refused) == 0
        assert numbers(fleet) == [1, 2]
        assert (await submit(fleet.get("m", None)).one()).version == 2
        await eventually(lambda: states(fleet) == {1: ServingState.READY, 2: ServingState.READY})
        await fleet.unload("m", True)
        await eventually(
            lambda: states(fleet) == {1: ServingState.UNLOADED, 2: ServingState.UNLOADED}
        )
        await eventually(lambda: not kept(root.parent / "models-state"))


async def test_models_copied_in_later_are_listed_and_not_loaded(root: Path) -> None:
    write_identity(root, "m", 1)
    async with fleet_over(root, **explicit(root)) as fleet:
        await fleet.load("m", Override(config(max_batch_size=3)))
        write_identity(root, "later", 1)
        (root / "m" / "config.pbtxt").write_text(identity_config("m", extra="#\n"))
        await look_again(fleet, root)
        assert [(row.name, row.state) for row in fleet.rows()] == [
            ("later", None),
            ("m", ServingState.READY),
        ]
        assert fleet.get("m", None).version.config.max_batch_size == 3
