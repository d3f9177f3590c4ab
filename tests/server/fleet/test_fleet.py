"""The fleet over real folders and runtimes: load, swap, fail, unload, resize."""

import asyncio
import gc
import time
import weakref
from pathlib import Path

import pytest

from repository.folders.snapshot import scan
from repository.folders.watch import WatchedRepository
from schedulers.policy.cores import CoreTokens
from server.errors import NotReady, UnknownModel
from server.fleet.checks.check import Checker
from server.fleet.fleet import Fleet
from server.fleet.loading import VersionLoader
from server.served_version import ServingState
from server.settings.table import Settings
from support.fleet import (
    LATEST,
    break_version,
    eventually,
    fleet_over,
    look_again,
    numbers,
    reason,
    states,
    states_of,
    submit,
    write_config,
    write_onnx_model,
)
from support.server import identity_config, write_identity

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


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
        starting = asyncio.create_task(fleet.start(scan((tmp_path,))))
        await eventually(lambda: states(fleet) == {1: ServingState.LOADING})
        with pytest.raises(
            NotReady, match=r"'m' version 1 is not at ready state: version 1 is loading$"
        ):
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
    write_identity(tmp_path, "m", 1, 2, config=identity_config("m", delay_ms=2000))
    async with fleet_over(tmp_path) as fleet:
        reply = submit(fleet.get("m", 2))
        (tmp_path / "m" / "2").rmdir()
        await look_again(fleet, tmp_path)
        assert fleet.get("m", None).version.number == 1
        assert states(fleet)[2] == ServingState.DRAINING
        await reply.one()
        await eventually(lambda: states(fleet) == {1: ServingState.READY})


async def test_a_corrupt_version_is_a_state_with_a_reason_and_stops_nobody(tmp_path: Path) -> None:
    write_onnx_model(tmp_path, 1)
    write_identity(tmp_path, "other", 1)
    async with fleet_over(tmp_path) as fleet:
        break_version(tmp_path, 2)
        await look_again(fleet, tmp_path)
        assert states_of(fleet, "m") == {1: ServingState.READY, 2: ServingState.FAILED}
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
        assert states_of(fleet, "m") == {1: ServingState.READY, 2: ServingState.READY}
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
        (group,) = served.version.config.instance_group
        assert (group.name, group.kind, group.count) == ("m", group.KIND_CPU, len(first))
        write_config(tmp_path, "instance_group { kind: KIND_CPU count: 5 }")
        await look_again(fleet, tmp_path)
        assert fleet.get("m", 1) is served
        assert len(served.instances) == 5
        assert set(first) < set(served.instances)
        assert served.counters.success == 1
        (group,) = served.version.config.instance_group
        assert (group.name, group.kind, group.count) == ("m_0", group.KIND_CPU, 5)
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
        assert states(fleet) == {1: ServingState.READY}


async def test_an_impossible_resize_keeps_the_instances_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    write_identity(tmp_path, "m", 1)
    async with fleet_over(tmp_path) as fleet:
        write_config(tmp_path, "instance_group { kind: KIND_GPU }")
        await look_again(fleet, tmp_path)
        assert states(fleet) == {1: ServingState.READY}
        assert "no NVIDIA GPU" in reason(fleet, 1)
        assert len(fleet.get("m", 1).instances) == 2


async def test_a_config_that_cannot_be_read_keeps_what_serves(tmp_path: Path) -> None:
    write_identity(tmp_path, "m", 1)
    async with fleet_over(tmp_path) as fleet:
        served = fleet.get("m", 1)
        (tmp_path / "m" / "config.pbtxt").write_text("no such field: 1")
        await look_again(fleet, tmp_path)
        assert fleet.get("m", 1) is served
        assert states(fleet) == {None: ServingState.FAILED, 1: ServingState.READY}
        assert "config.pbtxt" in reason(fleet, None)
        write_config(tmp_path)
        await look_again(fleet, tmp_path)
        assert states(fleet) == {1: ServingState.READY}


async def test_a_model_in_two_repositories_is_a_reason(tmp_path: Path) -> None:
    for root in ("a", "b"):
        write_identity(tmp_path / root, "m", 1)
    settings = Settings(model_repository=(tmp_path / "a", tmp_path / "b"))
    checker = Checker()
    repository = WatchedRepository(settings.model_repository)
    fleet = Fleet(VersionLoader(checker, CoreTokens(2), settings), repository, settings)
    failed = await fleet.start(repository.snapshot())
    assert [(row.name, row.version, row.state) for row in failed] == [
        ("m", None, ServingState.FAILED)
    ]
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
        assert states(fleet) == {1: ServingState.FAILED}
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
        with pytest.raises(UnknownModel, match="'m' has no available versions"):
            fleet.get("m", None)


async def test_labels_are_read_with_the_model(tmp_path: Path) -> None:
    config = identity_config("m").replace(
        'name: "OUTPUT0"', 'name: "OUTPUT0" label_filename: "labels.txt"'
    )
    folder = write_identity(tmp_path, "m", 1, config=config)
    (folder / "labels.txt").write_text("zero\nein-s\n", "utf-8")
    async with fleet_over(tmp_path) as fleet:
        assert fleet.get("m", 1).signature.outputs["OUTPUT0"].labels == ("zero", "ein-s")
        (folder / "labels.txt").write_bytes(b"\xff\xfe")
        await look_again(fleet, tmp_path)
        assert "labels.txt' of output 'OUTPUT0' is not UTF-8" in reason(fleet, 1)
        (folder / "labels.txt").unlink()
        await look_again(fleet, tmp_path)
        assert "labels.txt" in " ".join(row.reason for row in fleet.rows())


async def test_a_slow_load_of_one_model_does_not_delay_another(tmp_path: Path) -> None:
    slow = identity_config("slow", delay_ms=3000) + (
        'model_warmup { name: "w" inputs { key: "INPUT0" value '
        "{ data_type: TYPE_FP32 dims: 4 zero_data: true } } }"
    )
    write_identity(tmp_path, "m", 1)
    async with fleet_over(tmp_path) as fleet:
        write_identity(tmp_path, "slow", 1, config=slow)
        fleet.follow(scan((tmp_path,)))
        await eventually(lambda: states_of(fleet, "slow") == {1: ServingState.LOADING})
        write_identity(tmp_path, "m", 2)
        fleet.follow(scan((tmp_path,)))
        await eventually(lambda: states_of(fleet, "m").get(2) == ServingState.READY)
        assert states_of(fleet, "slow") == {1: ServingState.LOADING}
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
        await eventually(lambda: states(fleet) == {1: ServingState.READY})
        gc.collect()
        assert remembered() is None
