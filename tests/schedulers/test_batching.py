"""The pump: real loop, real lanes, an instance whose gate the test opens."""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable

import pytest

from backends.errors import ExecutionFailed
from backends.limits import NO_LIMIT, ExecutionLimit
from schedulers.batching import BatchScheduler
from schedulers.counters import Counters
from schedulers.errors import DeadlineExceeded, ShutDown
from schedulers.policy.cores import CoreTokens
from schedulers.policy.merge import MergeRules
from schedulers.policy.queue import BatchQueue, QueuePolicy
from schedulers.reply import Reply
from support.schedulers import GatedEcho, request

NOW = time.monotonic_ns


def scheduler(
    *instances: GatedEcho,
    rules: MergeRules | None = None,
    policy: QueuePolicy | None = None,
    tokens: CoreTokens | None = None,
    limit: ExecutionLimit = NO_LIMIT,
) -> BatchScheduler:
    return BatchScheduler(
        BatchQueue(policy or QueuePolicy(max_size=100)),
        rules or MergeRules(max_rows=8),
        instances,
        Counters(),
        tokens or CoreTokens(2),
        limit,
    )


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await test()

    asyncio.run(bounded())


async def started(instance: GatedEcho) -> None:
    assert await asyncio.to_thread(instance.started.acquire, timeout=60)


def test_a_batch_keeps_growing_while_the_instance_is_busy() -> None:
    async def test() -> None:
        echo = GatedEcho()
        pump = scheduler(echo)
        first = pump.submit(request(arrived_ns=NOW()))
        await started(echo)
        others = [pump.submit(request(2, arrived_ns=NOW())) for _ in range(3)]
        echo.gate.set()
        for reply in (first, *others):
            await reply.one()
        assert echo.batches == [[1], [2, 2, 2]]
        await pump.close()

    run(test)


def test_every_request_gets_its_own_rows_back() -> None:
    async def test() -> None:
        echo = GatedEcho()
        echo.gate.set()
        pump = scheduler(echo)
        replies = [pump.submit(request(value=i, arrived_ns=NOW())) for i in range(5)]
        answers = [await reply.one() for reply in replies]
        assert [float(answer.outputs["X"][0, 0]) for answer in answers] == [0, 1, 2, 3, 4]
        await pump.close()

    run(test)


def test_a_request_whose_client_has_gone_is_dropped_when_the_batch_is_formed() -> None:
    async def test() -> None:
        echo = GatedEcho()
        pump = scheduler(echo)
        first = pump.submit(request(arrived_ns=NOW()))
        await started(echo)
        gone, stays = (pump.submit(request(arrived_ns=NOW())) for _ in range(2))
        gone.cancel()
        echo.gate.set()
        await first.one()
        await stays.one()
        assert echo.batches == [[1], [1]]
        assert pump.inflight() == 0
        await pump.close()

    run(test)


def test_a_request_that_waits_too_long_is_refused_while_the_instance_is_busy() -> None:
    async def test() -> None:
        echo = GatedEcho()
        pump = scheduler(echo, policy=QueuePolicy(max_size=10, timeout_ns=20_000_000))
        busy = pump.submit(request(arrived_ns=NOW()))
        await started(echo)
        with pytest.raises(DeadlineExceeded, match=r"^Request timeout expired$"):
            await pump.submit(request(arrived_ns=NOW())).one()
        echo.gate.set()
        await busy.one()
        await pump.close()

    run(test)


def test_order_is_preserved_across_instances_when_asked() -> None:
    async def test() -> None:
        slow, fast = GatedEcho(), GatedEcho()
        fast.gate.set()
        pump = scheduler(slow, fast, rules=MergeRules(max_rows=1, preserve_order=True))
        order: list[str] = []
        both = asyncio.Event()

        def note(reply: Reply) -> None:
            order.append(reply.result().id)
            if len(order) == 2:
                both.set()

        for name in ("first", "second"):
            pump.submit(request(id=name, arrived_ns=NOW())).then(note)
        await started(slow)
        await started(fast)
        slow.gate.set()
        await both.wait()
        assert order == ["first", "second"]
        await pump.close()

    run(test)


def test_a_failed_batch_fails_its_requests_only() -> None:
    async def test() -> None:
        echo = GatedEcho(error=ExecutionFailed("boom"))
        echo.gate.set()
        pump = scheduler(echo)
        with pytest.raises(ExecutionFailed, match="boom"):
            await pump.submit(request(arrived_ns=NOW())).one()
        echo.error = None
        await pump.submit(request(arrived_ns=NOW())).one()
        await pump.close()

    run(test)


def test_what_is_no_exception_fails_its_batch_and_the_thread_goes_on() -> None:
    class Panic(BaseException):
        """As a panic of a library in Rust is."""

    async def test() -> None:
        echo = GatedEcho(error=Panic("no entry found for key"))
        echo.gate.set()
        pump = scheduler(echo)
        with pytest.raises(ExecutionFailed, match="Panic: no entry found for key"):
            await pump.submit(request(arrived_ns=NOW())).one()
        echo.error = None
        await pump.submit(request(arrived_ns=NOW())).one()
        await pump.close()

    run(test)


def test_two_models_share_the_cores_in_turn() -> None:
    async def test() -> None:
        tokens = CoreTokens(1)
        one, two = GatedEcho(), GatedEcho()
        first, second = scheduler(one, tokens=tokens), scheduler(two, tokens=tokens)
        a = first.submit(request(arrived_ns=NOW()))
        await started(one)
        b = second.submit(request(arrived_ns=NOW()))
        two.gate.set()
        await asyncio.sleep(0)
        assert two.batches == []
        one.gate.set()
        await a.one()
        await b.one()
        assert two.batches == [[1]]
        await first.close()
        await second.close()

    run(test)


def test_resizing_keeps_the_queue_and_closes_what_is_no_longer_wanted() -> None:
    async def test() -> None:
        old, new = GatedEcho(), GatedEcho()
        new.gate.set()
        pump = scheduler(old)
        busy = pump.submit(request(arrived_ns=NOW()))
        await started(old)
        queued = pump.submit(request(arrived_ns=NOW()))
        resizing = asyncio.ensure_future(pump.resize([new], NOW() + 60_000_000_000))
        await queued.one()
        assert not resizing.done()
        old.gate.set()
        await busy.one()
        await resizing
        assert old.closed
        await pump.close()
        assert old.closed
        assert new.closed

    run(test)


def test_an_execution_that_hangs_on_a_thread_fails_and_its_instance_rests_until_it_returns() -> (
    None
):
    async def test() -> None:
        hung, other = GatedEcho(), GatedEcho()
        other.gate.set()
        pump = scheduler(hung, other, limit=ExecutionLimit(0.05))
        reply = pump.submit(request(arrived_ns=NOW()))
        await started(hung)
        with pytest.raises(ExecutionFailed, match=re.escape("--model-execute-timeout-secs=0.05")):
            await reply.one()
        assert (pump.hung(), hung.ready, pump.inflight()) == (1, False, 0)
        await pump.submit(request(arrived_ns=NOW())).one()
        hung.gate.set()
        while not hung.ready:  # noqa: ASYNC110 - its thread returns
            await asyncio.sleep(0.005)
        assert pump.hung() == 0
        await pump.close()

    run(test)


def test_resizing_ends_beside_an_execution_that_hangs() -> None:
    async def test() -> None:
        old, new = GatedEcho(), GatedEcho()
        new.gate.set()
        pump = scheduler(old)
        hung = pump.submit(request(arrived_ns=NOW()))
        await started(old)
        await pump.resize([new], NOW())
        assert old.closed
        with pytest.raises(ShutDown):
            await hung.one()
        old.gate.set()
        await pump.close()

    run(test)


def test_queued_requests_wait_for_an_instance_that_comes_back() -> None:
    async def test() -> None:
        echo = GatedEcho()
        echo.gate.set()
        echo.ready = False
        pump = scheduler(echo)
        reply = pump.submit(request(arrived_ns=NOW()))
        await asyncio.sleep(0)
        assert echo.batches == []
        echo.ready = True
        echo.changed()
        await reply.one()
        await pump.close()

    run(test)


def test_nothing_runs_before_the_held_count_is_reached() -> None:
    async def test() -> None:
        echo = GatedEcho()
        echo.gate.set()
        pump = scheduler(echo, rules=MergeRules(max_rows=8, hold_until=3))
        replies = [pump.submit(request(arrived_ns=NOW())) for _ in range(2)]
        await asyncio.sleep(0)
        assert echo.batches == []
        replies.append(pump.submit(request(arrived_ns=NOW())))
        for reply in replies:
            await reply.one()
        assert echo.batches == [[1, 1, 1]]
        await pump.close()

    run(test)
