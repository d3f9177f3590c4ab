"""Loads ask the ledger first, and give everything back: refused, failed, unloaded, shrunk."""

import asyncio
import shutil
from pathlib import Path

import pytest

from backends.footprint import SESSION, THREAD, MemoryRequirement
from backends.seam import Device
from server.fleet.fleet import Fleet
from server.fleet.memory.grants import MemoryAllocator, MemoryRequest
from server.fleet.memory.ledger import MIB, DeviceAccount, OverBudget
from server.served_version import ServingState
from support.fleet import (
    break_version,
    eventually,
    fleet_over,
    look_again,
    reason,
    states,
    write_onnx_model,
)

pytestmark = pytest.mark.anyio
CPU = Device("cpu", 0, 1)
ROOM_FOR_ONE = SESSION + 2 * THREAD + MIB
"""Of the ONNX model with its two instances; not for a second version of it."""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def cpu(fleet: Fleet) -> DeviceAccount:
    (account,) = fleet.memory.accounts()
    return account


async def test_a_version_beyond_the_budget_is_refused_and_the_one_that_serves_goes_on(
    tmp_path: Path,
) -> None:
    write_onnx_model(tmp_path, 1)
    async with fleet_over(tmp_path, memory_budget=(f"cpu={ROOM_FOR_ONE}",)) as fleet:
        (held,) = cpu(fleet).grants
        assert held.holder == "m version 1"
        assert SESSION < held.bytes < ROOM_FOR_ONE
        write_onnx_model(tmp_path, 2)
        await look_again(fleet, tmp_path)
        assert states(fleet) == {1: ServingState.READY, 2: ServingState.FAILED}
        assert reason(fleet, 2).startswith("model 'm' is not loaded: m version 2 needs 4 MiB of")
        assert "m version 1 has 4 MiB; unload one of them" in reason(fleet, 2)
        assert fleet.get("m", None).version.number == 1


async def test_memory_is_returned_when_a_version_is_unloaded_or_fails(tmp_path: Path) -> None:
    write_onnx_model(tmp_path, 1)
    async with fleet_over(tmp_path) as fleet:
        break_version(tmp_path, 2)
        await look_again(fleet, tmp_path)
        assert [grant.holder for grant in cpu(fleet).grants] == ["m version 1"]
        shutil.rmtree(tmp_path / "m")
        await look_again(fleet, tmp_path)
        await eventually(lambda: cpu(fleet).grants == ())


async def test_more_instances_hold_more_and_fewer_less(tmp_path: Path) -> None:
    write_onnx_model(tmp_path, 1)
    config = tmp_path / "m" / "config.pbtxt"
    written = config.read_text()
    async with fleet_over(tmp_path) as fleet:
        before = cpu(fleet).granted
        config.write_text(written + "instance_group [ { count: 3 kind: KIND_CPU } ]")
        await look_again(fleet, tmp_path)
        assert cpu(fleet).granted > before
        config.write_text(written + "instance_group [ { count: 1 kind: KIND_CPU } ]")
        await look_again(fleet, tmp_path)
        assert 0 < cpu(fleet).granted < before


async def test_a_worker_process_is_charged_what_it_measures(tmp_path: Path) -> None:
    folder = tmp_path / "p" / "1"
    folder.mkdir(parents=True)
    (folder / "model.py").write_text(_PYTHON_MODEL)
    (folder.parent / "config.pbtxt").write_text(_PYTHON_CONFIG)
    async with fleet_over(tmp_path) as fleet:
        (held,) = cpu(fleet).grants
        assert 64 * MIB < held.bytes < 400 * MIB


async def test_who_only_caches_gives_back_for_a_load_and_has_it_again_afterwards() -> None:
    memory, cache = MemoryAllocator({"cpu": 100}), Cache()
    first = await memory.grant("first", [MemoryRequest("cpu", 1, MemoryRequirement(10, 90))])
    memory.loaded(first, [CPU], {}, cache)
    held_by_first = first.shares[0].grant.bytes
    second = await memory.grant("second", [MemoryRequest("cpu", 1, MemoryRequirement(80, 80))])
    assert 80 - (100 - held_by_first) <= cache.given <= held_by_first - 10
    (account,) = memory.accounts()
    assert account.granted == held_by_first - cache.given + 80 <= 100
    memory.release(second)
    await eventually(lambda: cache.given == 0)
    assert first.shares[0].grant.bytes == held_by_first


async def test_what_a_model_cannot_do_without_is_never_asked_back() -> None:
    memory, cache = MemoryAllocator({"cpu": 100}), Cache()
    first = await memory.grant("first", [MemoryRequest("cpu", 1, MemoryRequirement(50, 60))])
    memory.loaded(first, [CPU], {}, cache)
    with pytest.raises(OverBudget, match="first has 1 MiB; unload"):
        await memory.grant("second", [MemoryRequest("cpu", 1, MemoryRequirement(51, 51))])
    assert cache.given == 10


async def test_who_does_not_give_back_in_time_is_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("server.fleet.memory.grants.SHRINK_S", 0.01)
    memory = MemoryAllocator({"cpu": 100})
    first = await memory.grant("first", [MemoryRequest("cpu", 1, MemoryRequirement(10, 90))])
    memory.loaded(first, [CPU], {}, Stuck())
    with pytest.raises(OverBudget):
        await memory.grant("second", [MemoryRequest("cpu", 1, MemoryRequirement(80, 80))])
    assert (
        await memory.grant("third", [MemoryRequest("cpu", 1, MemoryRequirement(45, 45))])
    ).shares


async def test_a_load_for_two_devices_gets_both_or_nothing() -> None:
    memory = MemoryAllocator({"cpu": 100, "cuda:0": 10})
    wants = [
        MemoryRequest("cpu", 1, MemoryRequirement(50, 50)),
        MemoryRequest("cuda:0", 1, MemoryRequirement(20, 20)),
    ]
    with pytest.raises(OverBudget, match="cuda:0's memory"):
        await memory.grant("both", wants)
    assert [account.granted for account in memory.accounts()] == [0, 0]


class Cache:
    """What a language model's scheduler is to the ledger: it gives back what it is asked for."""

    def __init__(self) -> None:
        self.given = 0

    async def shrink(self, bytes: int) -> int:
        self.given += bytes
        return bytes

    async def grow(self, bytes: int) -> int:
        self.given -= bytes
        return bytes


class Stuck:
    """One that never answers."""

    async def shrink(self, bytes: int) -> int:
        await asyncio.Event().wait()
        raise AssertionError

    grow = shrink


_PYTHON_MODEL = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.held = np.ones(64 << 20, np.uint8)

    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.ones(1, np.float32))])]
"""
_PYTHON_CONFIG = """
name: "p" backend: "python"
input [ { name: "X" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "Y" data_type: TYPE_FP32 dims: [ 1 ] } ]
"""
