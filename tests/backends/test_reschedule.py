"""A request that a model wants executed once more, on its way from a worker to a scheduler."""

import asyncio
import time

import pytest

from backends.errors import BackendError, Reschedule
from backends.process.messages import WorkerError
from backends.process.reply_validation import raised
from backends.seam import Batch, BatchResult
from schedulers.batching import BatchScheduler
from schedulers.counters import Counters
from schedulers.policy.cores import CoreTokens
from schedulers.policy.merge import MergeRules
from schedulers.policy.queue import BatchQueue, QueuePolicy
from server.errors import status_of
from support.schedulers import GatedEcho, request


class AskingAgain(GatedEcho):
    """Never answers, but asks for another execution."""

    def execute(self, batch: Batch) -> BatchResult:
        return BatchResult([Reschedule() for _ in batch.members], 1, 2, 3)


def test_a_worker_says_that_it_wants_a_request_again() -> None:
    assert isinstance(raised(WorkerError("Reschedule", "once more", "")), Reschedule)


def test_to_a_model_without_iterative_sequences_it_is_an_error_that_names_the_field() -> None:
    async def act() -> BackendError:
        scheduler = BatchScheduler(
            BatchQueue(QueuePolicy(max_size=1)),
            MergeRules(max_rows=1),
            [AskingAgain()],
            Counters(),
            CoreTokens(1),
        )
        with pytest.raises(Reschedule) as caught:
            await scheduler.submit(request(arrived_ns=time.monotonic_ns())).one()
        await scheduler.close()
        return caught.value

    error = asyncio.run(act())
    assert "iterative_sequence: true" in str(error)
    assert status_of(error).http == 500
