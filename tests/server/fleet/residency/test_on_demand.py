"""Loaded by the first request, evicted for others, refused with what to do; over real models."""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from socket import socket

import pytest

from backends.process.call_link import CallConnection, CallingInstance
from backends.seam import Instance
from schedulers.errors import DeadlineExceeded
from server.errors import NotReady
from server.fleet.fleet import Fleet
from server.fleet.residency.relay import Relay
from server.served_version import ServingState
from support.fleet import eventually, fleet_over, look_again
from support.on_demand import ON_DEMAND, ROOM_FOR_ONE, parameter, resident, send, write
from support.schedulers import ticket

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_the_first_requests_load_a_model_once_and_all_are_answered(tmp_path: Path) -> None:
    write(tmp_path, "a")
    async with fleet_over(tmp_path, **ON_DEMAND) as fleet:
        served = fleet.get("a", None)
        assert served.ready
        assert fleet.ready()
        assert fleet.memory.rows()[1:] == []
        (row,) = fleet.rows()
        assert (row.state, row.reason) == (ServingState.READY, "unloaded, loads on demand")
        replies = [send(served) for _ in range(5)]
        for reply in replies:
            assert (await reply.one()).outputs["Y"].tolist() == [[1.0] * 4]
        assert fleet.residency.cold_starts.counts.count(0) == 16  # one load
        assert resident(fleet) == ["a"]
        assert fleet.get("a", None) is served
        assert (await send(served).one()).last
        assert served.counters.success == 6
        (row,) = fleet.rows()
        assert (row.reason, row.instances) == ("", "2 × cpu")


async def test_a_request_that_waits_for_a_load_is_worked_on(tmp_path: Path) -> None:
    write(tmp_path, "a")
    async with fleet_over(tmp_path, **ON_DEMAND) as fleet:
        reply = send(fleet.get("a", None))
        assert reply.executing
        await reply.one()


async def test_who_waited_for_a_load_executes_when_the_model_does() -> None:
    outer, inner = ticket(), ticket()
    Relay(outer, inner)
    assert not outer.executing
    inner.started_ns = 1
    assert outer.executing


async def test_an_idle_model_is_evicted_for_another_and_loaded_again(tmp_path: Path) -> None:
    for name in "abc":
        write(tmp_path, name)
    budget = (f"cpu={ROOM_FOR_ONE}",)
    async with fleet_over(tmp_path, memory_budget=budget, **ON_DEMAND) as fleet:
        for name in "abca":
            await send(fleet.get(name, None)).one()
            assert resident(fleet) == [name]
            (account,) = fleet.memory.accounts()
            assert account.granted <= ROOM_FOR_ONE
        assert fleet.residency.evictions == {("a", 1): 1, ("b", 1): 1, ("c", 1): 1}
        assert fleet.get("a", None).counters.success == 2


async def test_many_clients_of_many_models_beyond_the_budget_are_all_answered(
    tmp_path: Path,
) -> None:
    names = [f"m{n}" for n in range(6)]
    for name in names:
        write(tmp_path, name)
    budget = (f"cpu={2 * ROOM_FOR_ONE}",)
    async with fleet_over(tmp_path, memory_budget=budget, **ON_DEMAND) as fleet:

        async def client(first: int) -> None:
            for turn in range(12):
                await send(fleet.get(names[(first + turn * 5) % 6], None)).one()
                (account,) = fleet.memory.accounts()
                assert account.granted <= 2 * ROOM_FOR_ONE

        await asyncio.gather(*map(client, range(4)))
        assert sum(one.counters.success for one in fleet.served()) == 48


async def test_a_pinned_model_is_loaded_at_once_and_never_evicted(tmp_path: Path) -> None:
    write(tmp_path, "a", parameter("pinned", "true"))
    write(tmp_path, "b")
    budget = (f"cpu={ROOM_FOR_ONE}",)
    async with fleet_over(tmp_path, memory_budget=budget, **ON_DEMAND) as fleet:
        assert resident(fleet) == ["a"]
        with pytest.raises(NotReady) as refused:
            await send(fleet.get("b", None)).one()
        assert "b version 1 needs 4 MiB of cpu's memory" in str(refused.value)
        assert "a version 1 has 4 MiB" in str(refused.value)
        assert "of those that load on demand a version 1 is pinned" in str(refused.value)
        assert refused.value.awaited
        assert resident(fleet) == ["a"]


async def test_an_operator_pins_a_model_across_a_restart(tmp_path: Path) -> None:
    root, state = tmp_path / "models", tmp_path / "state"
    state.mkdir()
    write(root, "a")
    async with fleet_over(root, state_dir=state, **ON_DEMAND) as fleet:
        fleet.residency.pin("a", True)
        await eventually(lambda: resident(fleet) == ["a"])
    async with fleet_over(root, state_dir=state, **ON_DEMAND) as fleet:
        assert resident(fleet) == ["a"]
        fleet.residency.pin("a", False)
        (row,) = fleet.residency.rows()
        assert not row.pinned


async def test_a_load_waits_for_a_model_that_is_only_busy(tmp_path: Path) -> None:
    write(tmp_path, "a", parameter("keep_warm_secs", "0.3"))
    write(tmp_path, "b")
    budget = (f"cpu={ROOM_FOR_ONE}",)
    async with fleet_over(tmp_path, memory_budget=budget, **ON_DEMAND) as fleet:
        await send(fleet.get("a", None)).one()
        await send(fleet.get("b", None)).one()
        assert resident(fleet) == ["b"]


async def test_more_than_may_wait_are_refused_with_when_to_come_back(tmp_path: Path) -> None:
    write(tmp_path, "a")
    async with fleet_over(tmp_path, on_demand_max_waiting=2, **ON_DEMAND) as fleet:
        served = fleet.get("a", None)
        waiting = [send(served), send(served)]
        with pytest.raises(NotReady, match="as many as --on-demand-max-waiting=2 allows") as error:
            send(served)
        assert error.value.awaited
        waiting[0].cancel()
        third = send(served)
        assert [(await one.one()).last for one in (waiting[1], third)] == [True, True]


async def test_who_waits_too_long_is_refused_and_the_load_goes_on(tmp_path: Path) -> None:
    write(tmp_path, "a", parameter("keep_warm_secs", "1000"))
    write(tmp_path, "b")
    settings = {**ON_DEMAND, "on_demand_timeout_secs": 0.3}
    budget = (f"cpu={ROOM_FOR_ONE}",)
    async with fleet_over(tmp_path, memory_budget=budget, **settings) as fleet:
        await send(fleet.get("a", None)).one()
        with pytest.raises(NotReady, match=r"within --on-demand-timeout-secs=0\.3"):
            await send(fleet.get("b", None)).one()
        soon = time.monotonic_ns() + 50_000_000
        with pytest.raises(DeadlineExceeded, match="model 'b' version 1 was loading on demand"):
            await send(fleet.get("b", None), soon).one()


async def test_what_fails_to_load_says_why_and_is_tried_again_later(tmp_path: Path) -> None:
    write(tmp_path, "a")
    async with fleet_over(tmp_path, **ON_DEMAND) as fleet:
        served = fleet.get("a", None)
        path = tmp_path / "a" / "1" / "model.onnx"
        good = path.read_bytes()
        path.write_bytes(b"torn")
        with pytest.raises(NotReady, match=r"not been loaded on demand: .*cannot load model\.onnx"):
            await send(served).one()
        assert not served.ready
        assert "not been loaded on demand" in served.not_ready_reason
        path.write_bytes(good)
        await eventually(lambda: served.ready)
        await send(served).one()


async def test_a_new_version_of_a_model_in_use_is_loaded_before_it_answers(
    tmp_path: Path,
) -> None:
    write(tmp_path, "a")
    async with fleet_over(tmp_path, **ON_DEMAND) as fleet:
        await send(fleet.get("a", None)).one()
        write(tmp_path, "a", version=2)
        await look_again(fleet, tmp_path)
        assert fleet.get("a", None).version.number == 2
        assert resident(fleet) == ["a", "a"]


async def test_requests_that_wait_when_the_model_is_removed_are_answered(tmp_path: Path) -> None:
    write(tmp_path, "a")
    async with fleet_over(tmp_path, **ON_DEMAND) as fleet:
        reply = send(fleet.get("a", None))
    assert reply.ended
    assert reply.result().last


async def test_more_instances_are_there_from_the_next_load_on(tmp_path: Path) -> None:
    write(tmp_path, "a")
    async with fleet_over(tmp_path, **ON_DEMAND) as fleet:
        write(tmp_path, "a", "instance_group { count: 3 kind: KIND_CPU }")
        await look_again(fleet, tmp_path)
        await send(fleet.get("a", None)).one()
        assert len(fleet.get("a", None).instances) == 3
        write(tmp_path, "a", "instance_group { count: 1 kind: KIND_CPU }")
        await look_again(fleet, tmp_path)
        assert len(fleet.get("a", None).instances) == 1


class ResizeObserver:
    """A `CallService` that notes how many instances `a` has, and how many of those that it had are
    open, each time it is told that they have changed."""

    fleet: Fleet
    before: Sequence[Instance]

    def __init__(self) -> None:
        self.seen: list[tuple[int, int]] = []

    def connect(self, instance: CallingInstance, connection: socket) -> CallConnection:
        raise AssertionError("no model here calls others")

    def forget(self, spec: object) -> None: ...

    def resized(self) -> None:
        instances = self.fleet.get("a", None).instances
        self.seen.append((len(instances), sum(one.ready for one in self.before)))


async def test_scripts_are_told_of_the_instances_left_before_the_others_are_closed(
    tmp_path: Path,
) -> None:
    """One that executes is closed when that has ended, and it may wait for who is told."""
    write(tmp_path, "a", "instance_group { count: 3 kind: KIND_CPU }")
    observer = ResizeObserver()
    async with fleet_over(tmp_path, scripts=observer, **ON_DEMAND) as fleet:
        await send(fleet.get("a", None)).one()
        observer.fleet, observer.before = fleet, fleet.get("a", None).instances
        config = tmp_path / "a" / "config.pbtxt"
        config.write_text(config.read_text().replace("count: 3", "count: 1"))
        await look_again(fleet, tmp_path)
        assert observer.seen == [(1, 3)]
        assert sum(one.ready for one in observer.before) == 1
