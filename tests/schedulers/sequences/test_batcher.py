"""The sequence batcher's pump: real loop, an instance the test has in hand."""

import asyncio
import time
from collections.abc import Sequence

import pytest

from backends.errors import BackendError, InstanceDied, SequenceLost
from backends.seam import Batch, BatchResult, ResponsePart, ResponseSender
from schedulers.counters import Counters
from schedulers.errors import Cancelled
from schedulers.policy.cores import CoreTokens
from schedulers.policy.merge import MergeRules
from schedulers.policy.slots import SequenceRules
from schedulers.request import InferRequest
from schedulers.request import Sequence as Membership
from schedulers.sequences.batcher import SequenceBatcher
from support.schedulers import GatedEcho, request


def starting(key: int) -> InferRequest:
    return request(sequence=Membership(key, True, False), arrived_ns=time.monotonic_ns())


@pytest.mark.parametrize("keeps_state", [False, True])
def test_an_instance_hears_of_sequences_that_are_over_only_if_it_keeps_states(
    keeps_state: bool,
) -> None:
    async def test() -> None:
        echo = GatedEcho()
        echo.gate.set()
        rules = SequenceRules(False, 2, 60 * 10**9, 10, MergeRules(max_rows=2))
        batcher = SequenceBatcher(rules, [echo], Counters(), CoreTokens(2), keeps_state=keeps_state)
        gone = batcher.submit(starting(1))
        gone.cancel()
        with pytest.raises((Cancelled, BackendError)):
            await gone.one()
        await asyncio.sleep(0)
        await batcher.submit(starting(2)).one()
        await batcher.close()
        assert ([] in echo.batches) is keeps_state

    asyncio.run(asyncio.wait_for(test(), 60))


def test_nothing_starts_on_an_instance_that_ends_its_last_execution_while_it_is_closed() -> None:
    async def test() -> None:
        echo, tokens = GatedEcho(), CoreTokens(2)
        rules = SequenceRules(False, 2, 60 * 10**9, 10, MergeRules(max_rows=2))
        batcher = SequenceBatcher(rules, [echo], Counters(), tokens, keeps_state=True)
        batcher.submit(starting(1))
        await asyncio.to_thread(echo.started.acquire)
        closing = asyncio.create_task(batcher.close())
        await asyncio.sleep(0)
        echo.gate.set()
        await closing
        await asyncio.sleep(0)
        assert len(echo.batches) == 1
        assert tokens.free == 2

    asyncio.run(asyncio.wait_for(test(), 60))


class EarlyStream(GatedEcho):
    """A decoupled model whose answers end before its call returns, which the gate allows."""

    streams = True

    def stream(self, batch: Batch, outlets: Sequence[ResponseSender]) -> BatchResult:
        for member, outlet in zip(batch.members, outlets, strict=True):
            outlet.send(ResponsePart(dict(member.inputs), last=True))
        return self.execute(batch)._replace(results=())


def test_what_waits_runs_once_the_call_of_a_decoupled_model_returns_after_its_answers() -> None:
    async def test() -> None:
        instance = EarlyStream()
        rules = SequenceRules(False, 2, 60 * 10**9, 10, MergeRules(max_rows=1))
        batcher = SequenceBatcher(rules, [instance], Counters(), CoreTokens(2))
        first, second = batcher.submit(starting(1)), batcher.submit(starting(2))
        await first.one()
        await asyncio.sleep(0)  # the batcher has looked, and found its instance busy
        instance.gate.set()
        await second.one()
        await batcher.close()

    asyncio.run(asyncio.wait_for(test(), 60))


def test_requests_behind_a_cancelled_one_are_told_what_became_of_their_sequence() -> None:
    async def test() -> None:
        echo = GatedEcho()
        rules = SequenceRules(False, 2, 60 * 10**9, 10, MergeRules(max_rows=1))
        batcher = SequenceBatcher(rules, [echo], Counters(), CoreTokens(2))
        running, gone = batcher.submit(starting(1)), batcher.submit(starting(2))
        behind = batcher.submit(
            request(sequence=Membership(2, False, True), arrived_ns=time.monotonic_ns())
        )
        assert await asyncio.to_thread(echo.started.acquire, timeout=60)
        gone.cancel()
        echo.gate.set()
        await running.one()
        with pytest.raises(Cancelled, match="cancelled before it ran"):
            await behind.one()
        await batcher.close()

    asyncio.run(asyncio.wait_for(test(), 60))


class Mortal(GatedEcho):
    """Dies once, of the first execution, which the gate lets end."""

    deaths = 0

    def execute(self, batch: Batch) -> BatchResult:
        outcome = super().execute(batch)
        if self.deaths:
            return outcome
        self.deaths, self.ready = 1, False
        raise InstanceDied("it died")


def test_sequences_of_the_backlog_are_not_lost_with_an_instance_that_never_had_them() -> None:
    async def test() -> None:
        instance = Mortal()
        rules = SequenceRules(False, 1, 60 * 10**9, 10, MergeRules(max_rows=1))
        batcher = SequenceBatcher(rules, [instance], Counters(), CoreTokens(2))
        running, behind = batcher.submit(starting(1)), batcher.submit(starting(2))
        instance.gate.set()
        with pytest.raises((InstanceDied, SequenceLost)):
            await running.one()
        instance.ready = True
        instance.changed()
        await behind.one()
        await batcher.close()

    asyncio.run(asyncio.wait_for(test(), 60))
