"""The scheduler under the rate limiter: real loop, real lanes, instances the test has in hand."""

import asyncio
import random
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import ClassVar

import pytest

from backends.seam import Batch, BatchResult
from schedulers.counters import Counters
from schedulers.errors import DeadlineExceeded, ShutDown
from schedulers.policy.cores import CoreTokens
from schedulers.policy.merge import MergeRules
from schedulers.policy.queue import BatchQueue, QueuePolicy
from schedulers.policy.resource_limits import EVERY_DEVICE, InstanceLimit, Resource, ResourceLimiter
from schedulers.policy.slots import SequenceRules
from schedulers.rate_limited import RateLimitedScheduler, RateLimitedSequenceBatcher
from schedulers.request import Sequence as Membership
from support.schedulers import GatedEcho, request

R, S = Resource("R", 0), Resource("S", 0)
NOW = time.monotonic_ns


def scheduler(
    limiter: ResourceLimiter,
    *instances: GatedEcho,
    limit: InstanceLimit,
    tokens: CoreTokens | None = None,
) -> RateLimitedScheduler:
    limiter.register(dict.fromkeys(instances, limit))
    return RateLimitedScheduler(
        BatchQueue(QueuePolicy(max_size=1000)),
        MergeRules(max_rows=0),
        instances,
        Counters(),
        tokens or CoreTokens(8),
        limiter,
    )


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await test()

    asyncio.run(bounded())


async def started(instance: GatedEcho) -> None:
    assert await asyncio.to_thread(instance.started.acquire, timeout=60)


def test_an_execution_starts_only_when_its_resources_are_there() -> None:
    async def test() -> None:
        limiter, first, second = ResourceLimiter(), GatedEcho(), GatedEcho()
        pumps = [scheduler(limiter, echo, limit=InstanceLimit({R: 1})) for echo in (first, second)]
        one = pumps[0].submit(request(arrived_ns=NOW()))
        await started(first)
        other = pumps[1].submit(request(arrived_ns=NOW()))
        await asyncio.sleep(0)
        (usage,) = limiter.usage()
        assert (usage.in_use, usage.waiting, second.batches) == (1, 1, [])
        first.gate.set()
        await one.one()
        await started(second)
        second.gate.set()
        await other.one()
        for pump in pumps:
            await pump.close()
        assert limiter.usage() == []

    run(test)


def test_one_that_gives_up_waiting_leaves_the_resource_to_those_behind_it() -> None:
    async def test() -> None:
        limiter = ResourceLimiter({Resource("R", EVERY_DEVICE): 3})
        holder, large, small = GatedEcho(), GatedEcho(), GatedEcho()
        pumps = [
            scheduler(limiter, echo, limit=InstanceLimit({R: count}))
            for echo, count in ((holder, 1), (large, 3), (small, 1))
        ]
        held = pumps[0].submit(request(arrived_ns=NOW()))
        await started(holder)
        expiring = pumps[1].submit(request(arrived_ns=NOW(), deadline_ns=NOW() + 50_000_000))
        await asyncio.sleep(0)
        small.gate.set()
        behind = pumps[2].submit(request(arrived_ns=NOW()))
        with pytest.raises(DeadlineExceeded):
            await expiring.one()
        await behind.one()
        holder.gate.set()
        await held.one()
        for pump in pumps:
            await pump.close()

    run(test)


def test_an_instance_that_is_closed_while_it_executes_lets_the_others_go_on() -> None:
    async def test() -> None:
        limiter, hanging, waiting = ResourceLimiter(), GatedEcho(), GatedEcho()
        pumps = [
            scheduler(limiter, echo, limit=InstanceLimit({R: 1})) for echo in (hanging, waiting)
        ]
        lost = pumps[0].submit(request(arrived_ns=NOW()))
        await started(hanging)
        waiting.gate.set()
        reply = pumps[1].submit(request(arrived_ns=NOW()))
        await pumps[0].drain(NOW())
        closing = asyncio.create_task(pumps[0].close())
        await reply.one()
        hanging.gate.set()
        await closing
        with pytest.raises(ShutDown):
            await lost.one()
        await pumps[1].close()

    run(test)


class Executing(GatedEcho):
    """Executes for a moment, and knows how much of each resource all of them hold together."""

    held: ClassVar[Counter[Resource]] = Counter()
    most: ClassVar[Counter[Resource]] = Counter()
    lock = threading.Lock()

    def __init__(self, limit: InstanceLimit, log: list[str], name: str) -> None:
        super().__init__()
        self.limit, self.log, self.name = limit, log, name

    def execute(self, batch: Batch) -> BatchResult:
        with self.lock:
            self.held.update(self.limit.needs)
            for one, count in self.held.items():
                self.most[one] = max(self.most[one], count)
                self.log.append(self.name)
        time.sleep(0.0005)
        with self.lock:
            self.held.subtract(self.limit.needs)
        return BatchResult([dict(member.inputs) for member in batch.members], 1, 2, 3)


def test_models_that_contend_share_by_priority() -> None:
    async def test() -> None:
        limiter, log = ResourceLimiter(), list[str]()
        pumps = []
        for name, priority in (("once", 1), ("half", 2)):
            limit = InstanceLimit({R: 1}, priority)
            pumps.append(scheduler(limiter, Executing(limit, log, name), limit=limit))
        replies = [pump.submit(request(arrived_ns=NOW())) for pump in pumps for _ in range(60)]
        for reply in replies:
            await reply.one()
        counts = Counter(log[:60])  # while both have requests
        assert 36 <= counts["once"] <= 44
        for pump in pumps:
            await pump.close()

    run(test)


def test_many_models_on_few_cores_all_end_and_never_hold_more_than_there_is() -> None:
    async def test() -> None:
        chance = random.Random(7)
        copies = {R: 3, S: 2}
        limiter, tokens, log = ResourceLimiter(dict(copies)), CoreTokens(2), list[str]()
        Executing.held.clear()
        Executing.most.clear()
        pumps = []
        for index in range(8):
            needs = {one: chance.randint(1, copies[one]) for one in chance.choices([R, S], k=2)}
            limit = InstanceLimit(needs, chance.randint(1, 3))
            echoes = [Executing(limit, log, str(index)) for _ in range(2)]
            pumps.append(scheduler(limiter, *echoes, limit=limit, tokens=tokens))
        replies = [chance.choice(pumps).submit(request(arrived_ns=NOW())) for _ in range(400)]
        for reply in replies[::7]:
            reply.cancel()
        for at, reply in enumerate(replies):
            if at % 7:
                await reply.one()
        assert all(Executing.most[one] <= copies[one] for one in copies)
        for pump in pumps:
            await pump.close()
        assert limiter.usage() == []
        assert tokens.free == 2

    run(test)


def test_a_sequence_that_gives_up_waiting_leaves_the_resource_to_those_behind_it() -> None:
    async def test() -> None:
        limiter = ResourceLimiter({R: 3})
        holder, large, small = GatedEcho(), GatedEcho(), GatedEcho()
        held_by = scheduler(limiter, holder, limit=InstanceLimit({R: 1}))
        held = held_by.submit(request(arrived_ns=NOW()))
        await started(holder)
        limiter.register({large: InstanceLimit({R: 3})})
        rules = SequenceRules(False, 2, 60 * 10**9, 10, MergeRules(max_rows=1))
        tokens = CoreTokens(8)
        sums = RateLimitedSequenceBatcher(rules, [large], Counters(), tokens, limiter)
        member = Membership(1, True, True)
        leaving = sums.submit(request(arrived_ns=NOW(), sequence=member))
        await asyncio.sleep(0)
        assert limiter.usage()[0].waiting == 1
        small.gate.set()
        pump = scheduler(limiter, small, limit=InstanceLimit({R: 1}))
        behind = pump.submit(request(arrived_ns=NOW()))
        await asyncio.sleep(0)
        assert small.batches == []
        leaving.cancel()
        sums.submit(request(arrived_ns=NOW(), sequence=Membership(2, True, True))).cancel()
        await behind.one()
        holder.gate.set()
        await held.one()
        for one in (held_by, sums, pump):
            await one.close()
        assert limiter.usage() == []

    run(test)


def test_sequences_of_several_models_all_end_and_never_hold_more_than_there_is() -> None:
    async def test() -> None:
        chance = random.Random(3)
        limiter, tokens, log = ResourceLimiter({R: 2}), CoreTokens(2), list[str]()
        Executing.held.clear()
        Executing.most.clear()
        rules = SequenceRules(False, 2, 60 * 10**9, 1000, MergeRules(max_rows=1))
        pumps = []
        for name in ("a", "b", "c"):
            limit = InstanceLimit({R: chance.randint(1, 2)})
            echoes = [Executing(limit, log, name) for _ in range(2)]
            limiter.register(dict.fromkeys(echoes, limit))
            pumps.append(RateLimitedSequenceBatcher(rules, echoes, Counters(), tokens, limiter))
        replies = []
        for key in range(60):
            pump = chance.choice(pumps)
            for step in range(4):
                member = Membership(key, step == 0, step == 3)
                replies.append(pump.submit(request(arrived_ns=NOW(), sequence=member)))
        for reply in replies:
            await reply.one()
        assert 0 < Executing.most[R] <= 2
        for one in pumps:
            await one.close()
        assert limiter.usage() == []
        assert tokens.free == 2

    run(test)
