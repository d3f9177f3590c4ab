"""What goes wrong, or happens at the same time, with versions that are loaded on demand."""

import asyncio
import errno
import gc
import weakref
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import cast

import pytest

from repository.folders.snapshot import scan
from repository.model import ModelConfig
from schedulers.errors import ShutDown
from schedulers.policy.queue import Ticket
from schedulers.reply import Reply
from schedulers.request import InferRequest, InferResponse
from schedulers.request import Sequence as SequenceMembership
from server.errors import NotReady
from server.fleet.built_version import BuiltVersion
from server.fleet.fleet import Fleet
from server.fleet.residency.on_demand import OnDemandVersion
from server.fleet.residency.relay import MOST_UNREAD, Relay
from server.fleet.residency.terms import ResidencyTerms
from support.fleet import eventually, fleet_over, look_again
from support.on_demand import ON_DEMAND, ROOM_FOR_ONE, parameter, resident, send, write

pytestmark = pytest.mark.anyio
DIRECT = "sequence_batching { direct {} } max_batch_size: 4\n"
ONE, THREE = (f"instance_group {{ count: {n} kind: KIND_CPU }}\n" for n in (1, 3))


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def scheduler(fleet: Fleet) -> OnDemandVersion:
    """Of model "a", which is not loaded."""
    return cast(OnDemandVersion, fleet.get("a", None).scheduler)


def loaded_by(
    fleet: Fleet, load: Callable[[ModelConfig | None], Awaitable[BuiltVersion]]
) -> OnDemandVersion:
    """Model "a", loaded in another way from now on."""
    former = scheduler(fleet)
    version = OnDemandVersion(former.served, ResidencyTerms(True), load, fleet.residency)
    version.built = former.built
    version.stand_by()
    return version


async def test_a_load_that_fails_unexpectedly_refuses_who_waits_and_is_not_tried_at_once(
    tmp_path: Path,
) -> None:
    async def load(groups: ModelConfig | None) -> BuiltVersion:
        raise OSError(errno.EMFILE, "Too many open files")

    write(tmp_path, "a")
    async with fleet_over(tmp_path, strict_readiness=True, **ON_DEMAND) as fleet:
        version, counters = loaded_by(fleet, load), fleet.get("a", None).counters
        with pytest.raises(NotReady, match=r"OSError: \[Errno 24\] Too many open files"):
            await send(version.served).one()
        with pytest.raises(NotReady, match="Too many open files"):
            send(version.served)
        with pytest.raises(NotReady, match="Too many open files"):
            await version.loaded()
        assert counters.failure["REJECTED"] == 3
        assert version.waiting == 0


async def test_a_cold_model_that_cannot_be_loaded_leaves_the_server_ready(tmp_path: Path) -> None:
    write(tmp_path, "a")
    async with fleet_over(tmp_path, strict_readiness=True, **ON_DEMAND) as fleet:
        (tmp_path / "a" / "1" / "model.onnx").write_bytes(b"torn")
        with pytest.raises(NotReady):
            await send(fleet.get("a", None)).one()
        assert not fleet.get("a", None).ready
        assert fleet.ready()


async def test_a_version_is_not_evicted_while_its_instances_change(tmp_path: Path) -> None:
    write(tmp_path, "a", ONE)
    async with fleet_over(tmp_path, **ON_DEMAND) as fleet:
        version = scheduler(fleet)
        await version.loaded()
        begun, goes_on = asyncio.Event(), asyncio.Event()

        async def resize(*_: object) -> None:
            begun.set()
            await goes_on.wait()

        task = asyncio.create_task(version.reshape(version.served.version, resize))
        await begun.wait()
        eviction = await fleet.residency.make_room("cpu", 1, "b version 1")
        assert eviction.held == ("a version 1 will be called by 1 request",)
        assert eviction.may_pass
        goes_on.set()
        await task
        assert resident(fleet) == ["a"]
        assert (await fleet.residency.make_room("cpu", 1, "b")).victims == ("a version 1",)
        assert resident(fleet) == []


async def test_instances_asked_for_while_a_load_is_under_way_are_there_after_it(
    tmp_path: Path,
) -> None:
    write(tmp_path, "a", ONE)
    async with fleet_over(tmp_path, **ON_DEMAND) as fleet:
        version = scheduler(fleet)

        async def resize(*_: object) -> None:
            raise AssertionError("nothing is loaded yet")

        reply = send(version.served)
        await asyncio.sleep(0)
        write(tmp_path, "a", THREE)
        (written,) = scan((tmp_path,)).models["a"].versions
        await version.reshape(written, resize)
        assert version.loading
        assert (await reply.one()).last
        assert len(fleet.get("a", None).instances) == 3
        (account,) = fleet.memory.accounts()
        assert len(account.grants) == 1


async def test_a_sequence_goes_on_with_the_version_that_a_reload_replaces(tmp_path: Path) -> None:
    write(tmp_path, "a", DIRECT)
    async with fleet_over(tmp_path, **ON_DEMAND) as fleet:
        former = fleet.get("a", None)
        await send(former, sequence=SequenceMembership(7, True, False)).one()
        write(tmp_path, "a", DIRECT + parameter("keep_warm_secs", "0"))
        fleet.follow(scan((tmp_path,)))
        await eventually(lambda: fleet.get("a", None) is not former)
        (holder,) = fleet.holders_of("a", None, 7)
        assert holder is former
        assert (await send(holder, sequence=SequenceMembership(7, False, True)).one()).last


async def test_sequences_are_counted_on_over_evictions_and_nothing_evicted_is_kept(
    tmp_path: Path,
) -> None:
    write(tmp_path, "a", DIRECT)
    async with fleet_over(tmp_path, **ON_DEMAND) as fleet:
        served = fleet.get("a", None)
        await send(served, sequence=SequenceMembership(7, True, True)).one()
        counters, loaded = served.counters.sequences, weakref.ref(served.scheduler)
        assert counters is not None
        await eventually(lambda: not counters.live)
        await eventually(lambda: fleet.residency.rows()[0].hold == "")
        await fleet.residency.make_room("cpu", 1, "b")
        assert (counters.started, counters.slots) == (1, 0)
        await eventually(lambda: gc.collect() >= 0 and loaded() is None)
        await send(served, sequence=SequenceMembership(8, True, True)).one()
        assert served.counters.sequences is counters
        assert counters.started == 2


async def test_two_cold_models_do_not_wait_for_each_other(tmp_path: Path) -> None:
    write(tmp_path, "a", parameter("pinned", "true"))
    for name in "bc":
        write(tmp_path, name)
    budget = (f"cpu={ROOM_FOR_ONE}",)
    async with fleet_over(tmp_path, memory_budget=budget, **ON_DEMAND) as fleet:
        for reply in [send(fleet.get(name, None)) for name in "bc"]:
            with pytest.raises(NotReady, match="a version 1 is pinned") as refused:
                await reply.one()
            assert "--on-demand-timeout-secs" not in str(refused.value)


async def test_who_has_waited_too_long_for_memory_is_told_who_has_it(tmp_path: Path) -> None:
    write(tmp_path, "a", parameter("keep_warm_secs", "1000"))
    write(tmp_path, "b")
    settings = {**ON_DEMAND, "on_demand_timeout_secs": 0.3}
    async with fleet_over(tmp_path, memory_budget=(f"cpu={ROOM_FOR_ONE}",), **settings) as fleet:
        await send(fleet.get("a", None)).one()
        with pytest.raises(NotReady, match=r"secs=0\.3: .*a version 1 is kept warm 1000 s"):
            await send(fleet.get("b", None)).one()


async def test_a_reload_that_fails_leaves_what_serves_evictable(tmp_path: Path) -> None:
    for version in (1, 2):
        write(tmp_path, "a", version=version)
    async with fleet_over(tmp_path, **ON_DEMAND) as fleet:
        for version in (1, 2):
            await send(fleet.get("a", version)).one()
        write(tmp_path, "a", parameter("keep_warm_secs", "0"), version=1)
        (tmp_path / "a" / "2" / "model.onnx").write_bytes(b"torn")
        await look_again(fleet, tmp_path)
        await eventually(lambda: [row.bytes > 0 for row in fleet.residency.rows()] == [True] * 2)
        assert resident(fleet) == ["a", "a"]
        eviction = await fleet.residency.make_room("cpu", 1, "b")
        assert len(eviction.victims) == 1
        assert resident(fleet) == ["a"]


async def test_a_new_version_waits_for_memory_that_is_only_used_for_a_moment(
    tmp_path: Path,
) -> None:
    for name in "ab":
        write(tmp_path, name, parameter("keep_warm_secs", "1000"))
    budget = (f"cpu={2 * ROOM_FOR_ONE}",)
    async with fleet_over(tmp_path, memory_budget=budget, **ON_DEMAND) as fleet:
        for name in "ba":
            await send(fleet.get(name, None)).one()
        write(tmp_path, "b", parameter("keep_warm_secs", "1000"), version=2)
        await look_again(fleet, tmp_path)
        reason = next(row.reason for row in fleet.rows() if row[:2] == ("b", 2))
        assert "a version 1 is kept warm 1000 s after a request" in reason
        assert "for lack of memory; try 1 of 20" in reason


async def test_a_reader_slower_than_its_stream_is_told_when_the_model_goes() -> None:
    inner, outer = Reply(), Ticket(cast(InferRequest, None))
    for _ in range(2 * MOST_UNREAD):
        inner.send(InferResponse("", "a", 1, {}, last=False))
    task = asyncio.create_task(Relay(outer, inner).run())
    await eventually(lambda: outer.unread is not None)
    task.cancel()
    await asyncio.wait([task])
    assert isinstance(outer.error, ShutDown)
    assert inner.cancelled
