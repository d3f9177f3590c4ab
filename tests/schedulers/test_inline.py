"""Short executions run on the event loop's own thread, and nobody can tell but by the clock."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable

import pytest

from backends.errors import ExecutionFailed
from backends.seam import Batch, BatchResult
from schedulers.batching import BatchScheduler
from schedulers.counters import Counters
from schedulers.policy.cores import CoreTokens
from schedulers.policy.inline import MOST_INLINE
from schedulers.policy.merge import MergeRules
from schedulers.policy.queue import NEVER, BatchQueue, QueuePolicy
from schedulers.policy.resource_limits import InstanceLimit, Resource, ResourceLimiter
from schedulers.rate_limited import RateLimitedScheduler
from schedulers.reply import Reply
from support.schedulers import GatedEcho, request

LOOP = threading.get_ident()


class QuickEcho(GatedEcho):
    """Its gate is open; notes the thread of its last execution."""

    loop_safe = True

    def __init__(self, error: BaseException | None = None) -> None:
        super().__init__(error=error)
        self.gate.set()
        self.thread = 0

    def execute(self, batch: Batch) -> BatchResult:
        self.thread = threading.get_ident()
        return super().execute(batch)


def scheduler(
    echo: GatedEcho, rules: MergeRules | None = None, limiter: ResourceLimiter | None = None
) -> BatchScheduler:
    queue, tokens = BatchQueue(QueuePolicy(max_size=1000)), CoreTokens(2)
    rules, counters = rules or MergeRules(max_rows=0), Counters()
    if limiter is None:
        return BatchScheduler(queue, rules, [echo], counters, tokens)
    limiter.register({echo: InstanceLimit({Resource("R", 0): 1})})
    return RateLimitedScheduler(queue, rules, [echo], counters, tokens, limiter)


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await test()

    asyncio.run(bounded())


async def ask(pump: BatchScheduler, value: float = 0.0) -> float:
    reply = pump.submit(request(value=value, arrived_ns=time.monotonic_ns()))
    return float((await reply.one()).outputs["X"][0, 0])


async def until_inline(pump: BatchScheduler, echo: QuickEcho) -> None:
    """Ask until an execution was short enough: how many that takes depends on the machine."""
    while echo.thread != LOOP:
        await ask(pump)


def test_short_executions_come_to_run_on_the_loop() -> None:
    async def test() -> None:
        echo = QuickEcho()
        pump = scheduler(echo)
        assert await ask(pump) == 0
        assert echo.thread != LOOP
        await until_inline(pump, echo)
        answered = pump._counters.success
        assert await ask(pump, 7) == 7
        assert pump._counters.success == pump._counters.executions == answered + 1
        assert pump.inflight() == 0
        await pump.close()

    run(test)


def test_an_instance_that_may_wait_stays_on_its_thread() -> None:
    async def test() -> None:
        echo = QuickEcho()
        echo.loop_safe = False
        pump = scheduler(echo)
        for _ in range(100):
            await ask(pump)
            assert echo.thread != LOOP
        await pump.close()

    run(test)


def test_an_execution_that_fails_on_the_loop_fails_its_request_alone() -> None:
    async def test() -> None:
        echo = QuickEcho()
        pump = scheduler(echo)
        await until_inline(pump, echo)
        echo.error, echo.thread = ExecutionFailed("no"), 0
        with pytest.raises(ExecutionFailed, match="no"):
            await ask(pump)
        echo.error = None
        assert await ask(pump, 3) == 3
        await pump.close()

    run(test)


def test_order_is_preserved_beside_executions_on_the_loop() -> None:
    async def test() -> None:
        echo = QuickEcho()
        pump = scheduler(echo, MergeRules(max_rows=1, preserve_order=True))
        await until_inline(pump, echo)
        order: list[int] = []
        for number in range(3 * MOST_INLINE):
            reply = pump.submit(request(arrived_ns=time.monotonic_ns()))
            reply.then(lambda _, number=number: order.append(number))  # type: ignore[misc]
        await pump.drain(NEVER)
        assert order == list(range(3 * MOST_INLINE))
        await pump.close()

    run(test)


def test_an_execution_on_the_loop_takes_its_resources_and_gives_them_back() -> None:
    async def test() -> None:
        limiter, echo, other = ResourceLimiter(), QuickEcho(), QuickEcho()
        pump, beside = scheduler(echo, limiter=limiter), scheduler(other, limiter=limiter)
        await until_inline(pump, echo)
        for _ in range(3):
            await asyncio.gather(ask(pump), ask(beside))
        await pump.close()
        await beside.close()

    run(test)


def test_requests_that_follow_from_answers_do_not_keep_the_loop_from_others() -> None:
    async def test() -> None:
        echo = QuickEcho()
        pump = scheduler(echo)
        await until_inline(pump, echo)
        answers, others, over = 0, 0, asyncio.Event()

        def again(_: Reply | None = None) -> None:
            nonlocal answers
            answers += 1
            if not others and answers < 100 * MOST_INLINE:
                pump.submit(request(arrived_ns=time.monotonic_ns())).then(again)
            else:
                over.set()

        def other() -> None:
            nonlocal others
            others += 1

        again()
        asyncio.get_running_loop().call_later(0, other)
        await over.wait()
        assert others
        assert answers < 100 * MOST_INLINE
        await pump.close()

    run(test)
