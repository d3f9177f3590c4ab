"""The sequence batcher's pump: real loop, an instance the test has in hand."""

import asyncio
import time

import pytest

from backends.errors import BackendError
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
