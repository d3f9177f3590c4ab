"""Language models on one budget: the one that only caches makes room for the one that loads."""

import asyncio
import shutil
import time
from pathlib import Path

import pytest

from backends.footprint import CUDA_CONTEXT, MIB, WORKERS, handed_down, need_of
from backends.llm.sampling.params import SamplingParams
from repository.folders.snapshot import scan
from schedulers.llm.generation import GENERATE, OUTPUT, GenerateRequest
from schedulers.request import InferRequest
from server.fleet.fleet import Fleet
from server.served_version import ServingState
from support.fleet import eventually, fleet_over, look_again, states_of
from support.llm import make_checkpoint, save_tokeniser

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint")
    make_checkpoint("llama", folder, num_hidden_layers=4)
    save_tokeniser(folder)
    return folder


def put(root: Path, name: str, checkpoint: Path, parameters: str = "") -> None:
    shutil.copytree(checkpoint, root / name / "1")
    (root / name / "config.pbtxt").write_text(f'name: "{name}" backend: "llm"\n{parameters}')


async def test_a_model_that_loads_gets_what_another_only_caches_in_until_it_goes(
    tmp_path: Path, checkpoint: Path
) -> None:
    put(tmp_path, "first", checkpoint)
    need = need_of(scan((tmp_path,)).models["first"].versions[0], 1)
    spare = need.wanted - need.least
    assert spare > 4 * MIB
    budget = need.least + need.least + spare // 2
    async with fleet_over(tmp_path, memory_budget=(f"cpu={budget}",)) as fleet:
        assert granted(fleet) == {"first version 1": need.wanted}
        put(tmp_path, "second", checkpoint)
        await look_again(fleet, tmp_path)
        assert states_of(fleet, "second") == {1: ServingState.READY}
        assert need.least <= granted(fleet)["second version 1"] < need.wanted
        assert granted(fleet)["first version 1"] <= need.least + spare // 2
        assert await answer(fleet, "first") == await answer(fleet, "second")
        shutil.rmtree(tmp_path / "second")
        await look_again(fleet, tmp_path)
        await eventually(lambda: granted(fleet) == {"first version 1": need.wanted})
        assert await answer(fleet, "first")


@pytest.mark.slow
async def test_a_budget_the_config_names_is_neither_cut_nor_exceeded(
    tmp_path: Path, checkpoint: Path
) -> None:
    text = 'parameters { key: "memory_budget" value { string_value: "40MiB" } }'
    put(tmp_path, "named", checkpoint, text)
    async with fleet_over(tmp_path) as fleet:
        assert granted(fleet) == {"named version 1": 40 * MIB + WORKERS["llm"]}


def test_on_a_gpu_a_model_needs_its_plan_and_what_cuda_takes(
    tmp_path: Path, checkpoint: Path
) -> None:
    put(tmp_path, "m", checkpoint)
    version = scan((tmp_path,)).models["m"].versions[0]
    here, there = need_of(version, 2), need_of(version, 2, "cuda:1")
    assert there.least - here.least == 2 * (CUDA_CONTEXT - WORKERS["llm"])
    assert there.wanted - there.least == here.wanted - here.least


def test_instances_on_several_devices_are_told_of_the_least_that_any_of_them_has(
    tmp_path: Path, checkpoint: Path
) -> None:
    put(tmp_path, "m", checkpoint)
    version = scan((tmp_path,)).models["m"].versions[0]
    granted = [("cpu", 50 * MIB + WORKERS["llm"]), ("cuda:0", 60 * MIB + CUDA_CONTEXT)]
    told = handed_down(version, granted).config.parameters["memory_budget"].string_value
    assert int(told) == 50 * MIB


async def test_a_model_too_large_for_the_budget_is_not_loaded_and_no_process_is_left(
    tmp_path: Path, checkpoint: Path
) -> None:
    put(tmp_path, "large", checkpoint)
    async with fleet_over(tmp_path, memory_budget=("cpu=100MiB",)) as fleet:
        assert states_of(fleet, "large") == {1: ServingState.FAILED}
        (row,) = fleet.rows()
        assert "the whole budget is 100 MiB; make it smaller, or give more with" in row.reason
        assert granted(fleet) == {}


def granted(fleet: Fleet) -> dict[str, int]:
    return {one.holder: one.bytes for account in fleet.memory.accounts() for one in account.grants}


async def answer(fleet: Fleet, name: str) -> str:
    """A greedy answer of eight tokens."""
    asked = GenerateRequest("0", (5, 6, 7), 8, SamplingParams(temperature=0.0), ignore_end=True)
    served = fleet.get(name, None)
    request = InferRequest(
        name, 1, {}, 1, None, time.monotonic_ns(), id="0", parameters={GENERATE: (asked,)}
    )
    async with asyncio.timeout(60):
        said = [one.parameters[OUTPUT][1] async for one in served.scheduler.submit(request)]
    return "".join(output.text for output in said)
