"""The fleet over real folders and the identity backend: load, swap, fail, unload, resize."""

import asyncio
import gc
import time
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from repository.snapshot import scan
from repository.watch import Repository
from schedulers.cores import CoreTokens
from schedulers.reply import Reply
from server.admit import admit
from server.check import Checker
from server.errors import Internal, InvalidRequest, ModelLoadFailed, NotReady, UnknownModel
from server.fleet import Fleet
from server.loading import Loader
from server.served import Served, State
from server.settings import Settings
from server_support import identity_config, write_identity

LATEST = "version_policy { latest { num_versions: 1 } }"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@asynccontextmanager
async def fleet_over(root: Path, start: bool = True, **settings: Any) -> AsyncIterator[Fleet]:
    chosen = Settings(model_repository=(root,), cores=2, exit_timeout_secs=10, **settings)
    checker = Checker(chosen.check_timeout_secs)
    repository = Repository((root,), use_events=False)
    fleet = Fleet(Loader(checker, CoreTokens(2), chosen), repository, chosen)
    try:
        if start:
            await fleet.start()
        yield fleet
    finally:
        await fleet.close(time.monotonic_ns() + 10_000_000_000)
        await checker.close()


async def look_again(fleet: Fleet, root: Path) -> None:
    """What the pump does when the repository has changed, and wait for the result."""
    fleet.follow(scan((root,)))
    await fleet.settle()


async def eventually(true: Callable[[], bool], seconds: float = 10.0) -> None:
    async with asyncio.timeout(seconds):
        while not true():  # noqa: ASYNC110 - polls a state that announces nothing
            await asyncio.sleep(0.005)


def submit(served: Served, rows: int = 1) -> Reply:
    tensor = np.ones((rows, 4), np.float32)
    return served.scheduler.submit(
        admit(served.signature, {"INPUT0": tensor}, time.monotonic_ns(), "1")
    )


def states(fleet: Fleet) -> dict[int | None, State | None]:
    return {row.version: row.state for row in fleet.rows()}


def reason(fleet: Fleet, version: int | None) -> str:
    return next(row.reason for row in fleet.rows() if row.version == version)


def numbers(fleet: Fleet) -> list[int]:
    return [served.version.number for served in fleet.served()]


def write_config(root: Path, extra: str = "", policy: str = "version_policy { all {} }") -> None:
    text = identity_config("m").replace("version_policy { all {} }", policy)
    (root / "m" / "config.pbtxt").write_text(text + extra)


def break_version(root: Path, number: int) -> None:
    """Put a file there that no runtime can read."""
    folder = root / "m" / str(number)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.onnx").write_bytes(b"not a model")


pytestmark = pytest.mark.anyio


async def test_every_version_answers_and_none_means_the_highest(tmp_path: Path) -> None:
    write_identity(tmp_path, "m", 1, 2)
    async with fleet_over(tmp_path) as fleet:
        assert fleet.get("m", None).version.number == 2
        assert fleet.get("m", 1).version.number == 1
        response = await submit(fleet.get("m", 1)).one()
        assert response.outputs["OUTPUT0"].shape == (1, 4)
        assert fleet.ready()


async def test_what_does_not_answer_is_refused_in_tritons_words(tmp_path: Path) -> None:
    write_identity(tmp_path, "m", 1)
    async with fleet_over(tmp_path) as fleet:
        with pytest.raises(UnknownModel, match=r"^Request for unknown model: 'x' is not found$"):
            fleet.get("x", None)
        with pytest.raises(
            UnknownModel, match=r"^Request for unknown model: 'm' version 9 is not found$"
        ):
            fleet.get("m", 9)


async def test_a_version_still_loading_is_not_ready(tmp_path: Path) -> None:
    write_identity(tmp_path, "m", 1)
    async with fleet_over(tmp_path, start=False) as fleet:
        starting = asyncio.create_task(fleet.start())
        await eventually(lambda: states(fleet) == {1: State.LOADING})
        with pytest.raises(NotReady, match=r"'m' version 1 is not at ready state$"):
            fleet.get("m", 1)
        assert not fleet.ready()
        await starting
        assert fleet.ready()


async def test_a_new_version_is_loaded_without_touching_the_others(tmp_path: Path) -> None:
    write_identity(tmp_path, "m", 1)
    async with fleet_over(tmp_path) as fleet:
        first = fleet.get("m", 1)
        write_identity(tmp_path, "m", 2)
        await look_again(fleet, tmp_path)
        assert fleet.get("m", None).version.number == 2
        assert fleet.get("m", 1) is first


async def test_removing_a_version_drains_it_and_it_is_gone(tmp_path: Path) -> None:
    write_identity(tmp_path, "m", 1, 2, config=identity_config("m", delay_ms=200))
    async with fleet_over(tmp_path) as fleet:
        reply = submit(fleet.get("m", 2))
        (tmp_path / "m" / "2").rmdir()
        await look_again(fleet, tmp_path)
        assert fleet.get("m", None).version.number == 1
        assert states(fleet)[2] == State.DRAINING
        await reply.one()
        await eventually(lambda: states(fleet) == {1: State.READY})


async def test_a_corrupt_version_is_a_state_with_a_reason_and_stops_nobody(tmp_path: Path) -> None:
    write_onnx_model(tmp_path, 1)
    write_identity(tmp_path, "other", 1)
    async with fleet_over(tmp_path) as fleet:
        break_version(tmp_path, 2)
        await look_again(fleet, tmp_path)
        assert states_of(fleet, "m") == {1: State.READY, 2: State.FAILED}
        assert fleet.get("m", None).version.number == 1
        with pytest.raises(NotReady, match=r"'m' version 2 is not at ready state: .*model\.onnx"):
            fleet.get("m", 2)
        assert fleet.ready()


async def test_latest_keeps_the_old_version_when_the_new_one_fails(tmp_path: Path) -> None:
    write_onnx_model(tmp_path, 1, policy=LATEST)
    async with fleet_over(tmp_path) as fleet:
        old = fleet.get("m", None)
        break_version(tmp_path, 2)
        await look_again(fleet, tmp_path)
        assert fleet.get("m", None) is old
        await look_again(fleet, tmp_path)
        assert fleet.get("m", None) is old
        write_onnx_model(tmp_path, 2, policy=LATEST)
        await look_again(fleet, tmp_path)
        assert numbers(fleet) == [2]


async def test_a_failed_reload_leaves_every_old_version_serving(tmp_path: Path) -> None:
    write_onnx_model(tmp_path, 1)
    write_onnx_model(tmp_path, 2)
    async with fleet_over(tmp_path) as fleet:
        before = [fleet.get("m", 1), fleet.get("m", 2)]
        break_version(tmp_path, 2)
        config = (tmp_path / "m" / "config.pbtxt").read_text()
        (tmp_path / "m" / "config.pbtxt").write_text(config + 'metric_tags { key: "a" value: "b" }')
        await look_again(fleet, tmp_path)
        assert [fleet.get("m", 1), fleet.get("m", 2)] == before
        assert states_of(fleet, "m") == {1: State.READY, 2: State.READY}
        assert "serving what was loaded before" in reason(fleet, 2)
        assert reason(fleet, 1) == ""
        assert fleet.ready()


async def test_a_reload_swaps_while_requests_inside_finish_on_the_old(tmp_path: Path) -> None:
    write_identity(tmp_path, "m", 1, config=identity_config("m", delay_ms=300))
    async with fleet_over(tmp_path) as fleet:
        old = fleet.get("m", 1)
        replies = [submit(old) for _ in range(6)]
        write_identity(tmp_path, "m", 1, config=identity_config("m", delay_ms=1))
        await look_again(fleet, tmp_path)
        assert fleet.get("m", 1) is not old
        await submit(fleet.get("m", 1)).one()
        for reply in replies:
            assert (await reply.one()).outputs["OUTPUT0"].shape == (1, 4)


async def test_nothing_is_rebuilt_when_nothing_changed(tmp_path: Path) -> None:
    write_identity(tmp_path, "m", 1)
    async with fleet_over(tmp_path) as fleet:
        before = fleet.get("m", 1)
        await look_again(fleet, tmp_path)
        assert fleet.get("m", 1) is before


async def test_instances_are_resized_in_place(tmp_path: Path) -> None:
    write_identity(tmp_path, "m", 1)
    async with fleet_over(tmp_path) as fleet:
        served = fleet.get("m", 1)
        await submit(served).one()
        first = served.instances
        write_config(tmp_path, "instance_group { kind: KIND_CPU count: 5 }")
        await look_again(fleet, tmp_path)
        assert fleet.get("m", 1) is served
        assert len(served.instances) == 5
        assert set(first) < set(served.instances)
        assert served.counters.success == 1
        assert served.version.config.instance_group[0].count == 5
        await submit(served).one()
        write_config(tmp_path, "instance_group { kind: KIND_CPU count: 2 }")
        await look_again(fleet, tmp_path)
        assert len(served.instances) == 2
        await submit(served).one()


async def test_a_gpu_this_machine_does_not_have_is_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    write_identity(
        tmp_path, "m", 1, config=identity_config("m") + "instance_group { kind: KIND_GPU }"
    )
    async with fleet_over(tmp_path) as fleet:
        assert "no NVIDIA GPU" in reason(fleet, 1)
        assert not fleet.ready()
        write_config(tmp_path, "instance_group { kind: KIND_CPU }")
        await look_again(fleet, tmp_path)
        assert states(fleet) == {1: State.READY}


async def test_an_impossible_resize_keeps_the_instances_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    write_identity(tmp_path, "m", 1)
    async with fleet_over(tmp_path) as fleet:
        write_config(tmp_path, "instance_group { kind: KIND_GPU }")
        await look_again(fleet, tmp_path)
        assert states(fleet) == {1: State.READY}
        assert "no NVIDIA GPU" in reason(fleet, 1)
        assert len(fleet.get("m", 1).instances) == 2


async def test_a_config_that_cannot_be_read_keeps_what_serves(tmp_path: Path) -> None:
    write_identity(tmp_path, "m", 1)
    async with fleet_over(tmp_path) as fleet:
        served = fleet.get("m", 1)
        (tmp_path / "m" / "config.pbtxt").write_text("no such field: 1")
        await look_again(fleet, tmp_path)
        assert fleet.get("m", 1) is served
        assert states(fleet) == {None: State.FAILED, 1: State.READY}
        assert "config.pbtxt" in reason(fleet, None)
        write_config(tmp_path)
        await look_again(fleet, tmp_path)
        assert states(fleet) == {1: State.READY}


async def test_a_model_in_two_repositories_is_a_reason(tmp_path: Path) -> None:
    for root in ("a", "b"):
        write_identity(tmp_path / root, "m", 1)
    settings = Settings(model_repository=(tmp_path / "a", tmp_path / "b"))
    checker = Checker()
    repository = Repository(settings.model_repository)
    fleet = Fleet(Loader(checker, CoreTokens(2), settings), repository, settings)
    failed = await fleet.start()
    assert [(row.name, row.version, row.state) for row in failed] == [("m", None, State.FAILED)]
    with pytest.raises(UnknownModel, match="'m' has no available versions: "):
        fleet.get("m", None)
    await fleet.close(time.monotonic_ns())
    await checker.close()


async def test_a_model_whose_only_version_fails_makes_a_strict_server_unready(
    tmp_path: Path,
) -> None:
    write_onnx_model(tmp_path, 1)
    break_version(tmp_path, 1)
    async with fleet_over(tmp_path) as fleet:
        assert states(fleet) == {1: State.FAILED}
        assert not fleet.ready()
    async with fleet_over(tmp_path, strict_readiness=False) as fleet:
        assert fleet.ready()


async def test_a_removed_model_leaves_nothing_behind(tmp_path: Path) -> None:
    folder = write_identity(tmp_path, "m", 1)
    async with fleet_over(tmp_path) as fleet:
        (folder / "1").rmdir()
        (folder / "config.pbtxt").unlink()
        folder.rmdir()
        await look_again(fleet, tmp_path)
        await eventually(lambda: not fleet.rows())
        with pytest.raises(UnknownModel, match="'m' is not found"):
            fleet.get("m", None)


async def test_labels_are_read_with_the_model(tmp_path: Path) -> None:
    config = identity_config("m").replace(
        'name: "OUTPUT0"', 'name: "OUTPUT0" label_filename: "labels.txt"'
    )
    folder = write_identity(tmp_path, "m", 1, config=config)
    (folder / "labels.txt").write_text("zero\nein-s\n", "utf-8")
    async with fleet_over(tmp_path) as fleet:
        assert fleet.get("m", 1).labels == {"OUTPUT0": ("zero", "ein-s")}
        (folder / "labels.txt").write_bytes(b"\xff\xfe")
        await look_again(fleet, tmp_path)
        assert "labels.txt' of output 'OUTPUT0' is not UTF-8" in reason(fleet, 1)
        (folder / "labels.txt").unlink()
        await look_again(fleet, tmp_path)
        assert "labels.txt" in " ".join(row.reason for row in fleet.rows())


async def test_load_and_unload_are_refused_unless_explicit(tmp_path: Path) -> None:
    write_identity(tmp_path, "m", 1)
    text = "explicit model load / unload is not allowed if polling is enabled"
    for mode in ("none", "poll"):
        async with fleet_over(tmp_path, model_control_mode=mode) as fleet:
            with pytest.raises(NotReady, match=text):
                await fleet.load("m")
            with pytest.raises(NotReady, match=text):
                await fleet.unload("m", False)


async def test_explicit_loads_only_what_is_named(tmp_path: Path) -> None:
    write_identity(tmp_path, "m", 1)
    write_identity(tmp_path, "n", 1)
    async with fleet_over(tmp_path, model_control_mode="explicit", load_model=("n",)) as fleet:
        assert [served.version.name for served in fleet.served()] == ["n"]
        assert [(row.name, row.state) for row in fleet.rows()] == [("m", None), ("n", State.READY)]
        with pytest.raises(UnknownModel, match="'m' is not found"):
            fleet.get("m", None)
        assert fleet.ready()
        await fleet.load("m")
        assert fleet.get("m", None).version.number == 1


async def test_explicit_star_loads_everything(tmp_path: Path) -> None:
    write_identity(tmp_path, "m", 1)
    write_identity(tmp_path, "n", 1)
    async with fleet_over(tmp_path, model_control_mode="explicit", load_model=("*",)) as fleet:
        assert [served.version.name for served in fleet.served()] == ["m", "n"]


async def test_explicit_load_of_an_unchanged_model_changes_nothing(tmp_path: Path) -> None:
    write_identity(tmp_path, "m", 1)
    async with fleet_over(tmp_path, model_control_mode="explicit") as fleet:
        await fleet.load("m")
        served = fleet.get("m", 1)
        await fleet.load("m")
        assert fleet.get("m", 1) is served
        write_config(tmp_path, 'metric_tags { key: "a" value: "b" }')
        await fleet.load("m")
        assert fleet.get("m", 1) is not served


async def test_explicit_unload_returns_while_requests_inside_finish(tmp_path: Path) -> None:
    write_identity(tmp_path, "m", 1, config=identity_config("m", delay_ms=200))
    async with fleet_over(tmp_path, model_control_mode="explicit", load_model=("m",)) as fleet:
        reply = submit(fleet.get("m", 1))
        await fleet.unload("m", False)
        assert states(fleet) == {1: State.DRAINING}
        with pytest.raises(UnknownModel, match=r"^Request for unknown model: 'm' has no available"):
            fleet.get("m", None)
        await reply.one()
        await eventually(lambda: states(fleet) == {1: State.UNLOADED})
        assert reason(fleet, 1) == "unloaded"
        assert fleet.ready()
        await fleet.load("m")
        assert states(fleet) == {1: State.READY}


async def test_unloading_an_unknown_model_is_not_an_error(tmp_path: Path) -> None:
    async with fleet_over(tmp_path, model_control_mode="explicit") as fleet:
        await fleet.unload("nobody", True)


@pytest.mark.parametrize(
    ("name", "error", "text"),
    [
        ("", InvalidRequest, "^Model name cannot be empty. Please enter a valid name to deploy.$"),
        (
            "../x",
            InvalidRequest,
            "^invalid model name '../x', model name must not contain path traversal characters$",
        ),
        ("nobody", Internal, "^failed to load 'nobody', no such model in the repository "),
    ],
)
async def test_explicit_load_of_nothing_says_so(
    tmp_path: Path, name: str, error: type[Exception], text: str
) -> None:
    async with fleet_over(tmp_path, model_control_mode="explicit") as fleet:
        with pytest.raises(error, match=text):
            await fleet.load(name)
        assert fleet.ready()


async def test_a_failed_explicit_load_tells_the_reason_and_may_be_repeated(tmp_path: Path) -> None:
    write_onnx_model(tmp_path, 1)
    break_version(tmp_path, 1)
    async with fleet_over(tmp_path, model_control_mode="explicit") as fleet:
        for _ in range(2):
            with pytest.raises(
                ModelLoadFailed,
                match=r"^load failed for model 'm': version 1 is at UNAVAILABLE state: Internal: ",
            ):
                await fleet.load("m")


async def test_a_slow_load_of_one_model_does_not_delay_another(tmp_path: Path) -> None:
    slow = identity_config("slow", delay_ms=1500) + (
        'model_warmup { name: "w" inputs { key: "INPUT0" value '
        "{ data_type: TYPE_FP32 dims: 4 zero_data: true } } }"
    )
    write_identity(tmp_path, "m", 1)
    async with fleet_over(tmp_path) as fleet:
        write_identity(tmp_path, "slow", 1, config=slow)
        fleet.follow(scan((tmp_path,)))
        await eventually(lambda: states_of(fleet, "slow") == {1: State.LOADING})
        write_identity(tmp_path, "m", 2)
        fleet.follow(scan((tmp_path,)))
        await eventually(lambda: states_of(fleet, "m").get(2) == State.READY)
        assert states_of(fleet, "slow") == {1: State.LOADING}
        await fleet.settle()


async def test_a_load_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    config = identity_config("m", delay_ms=2000) + (
        'model_warmup { name: "w" inputs { key: "INPUT0" value '
        "{ data_type: TYPE_FP32 dims: 4 zero_data: true } } }"
    )
    write_identity(tmp_path, "m", 1, config=config)
    async with fleet_over(tmp_path, model_load_timeout_secs=0.2) as fleet:
        assert "--model-load-timeout-secs=0.2" in reason(fleet, 1)


async def test_a_closed_version_is_forgotten_entirely(tmp_path: Path) -> None:
    write_identity(tmp_path, "m", 1, 2)
    async with fleet_over(tmp_path) as fleet:
        await submit(fleet.get("m", 2)).one()
        remembered = weakref.ref(fleet.get("m", 2).instances[0])
        (tmp_path / "m" / "2").rmdir()
        await look_again(fleet, tmp_path)
        await eventually(lambda: states(fleet) == {1: State.READY})
        gc.collect()
        assert remembered() is None


def states_of(fleet: Fleet, name: str) -> dict[int | None, State | None]:
    return {row.version: row.state for row in fleet.rows() if row.name == name}


def write_onnx_model(root: Path, number: int, policy: str = "version_policy { all {} }") -> None:
    """An ONNX identity, FP32 [4] in batches; all versions share the config."""
    folder = root / "m" / str(number)
    folder.mkdir(parents=True, exist_ok=True)
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 4]) for name in "XY"]
    graph = helper.make_graph(
        [helper.make_node("Identity", ["X"], ["Y"])], "g", value[:1], value[1:]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / "model.onnx")
    (root / "m" / "config.pbtxt").write_text(f'name: "m"\nbackend: "onnxruntime"\n{policy}\n')
