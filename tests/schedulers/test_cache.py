"""The response cache: what counts as the same request, what is dropped, what is counted."""

import asyncio
import time
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from schedulers.batching import BatchScheduler
from schedulers.cache import ENTRY_BYTES, CachedResponse, ResponseCache, answer_of, key_of
from schedulers.cached_scheduler import CachedScheduler
from schedulers.counters import Counters
from schedulers.errors import Draining
from schedulers.policy.cores import CoreTokens
from schedulers.policy.merge import MergeRules
from schedulers.policy.queue import BatchQueue, QueuePolicy
from schedulers.request import InferRequest, InferResponse, Sequence
from support.schedulers import GatedEcho

MIB = 1 << 20


def asked(array: Any = None, name: str = "X", **fields: Any) -> InferRequest:
    if array is None:
        array = np.arange(4, dtype=np.float32)
    return InferRequest("m", 1, {name: array}, 1, None, time.monotonic_ns(), **fields)


def words(*elements: bytes) -> Any:
    array = np.empty(len(elements), np.object_)
    array[:] = elements
    return array


def kept(size_bytes: int) -> CachedResponse:
    return CachedResponse({}, {}, size_bytes)


def test_the_same_request_has_the_same_key_whatever_its_id_and_layout() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    same = np.asfortranarray(array)
    assert key_of(asked(array, id="a")) == key_of(asked(same, id="b", timeout_us=5, priority=1))


DIFFERENT = [
    asked(),
    asked(parameters={"k": 2}),
    asked(words(b"", b"abc")),
    asked(requested_outputs=("C",)),
    asked(np.arange(4, dtype=np.float32).reshape(2, 2)),
    asked(np.arange(4, dtype=np.float32).view(np.int32)),
    asked(np.zeros(4, np.float32)),
    asked(name="Y"),
    asked(requested_outputs=("A",)),
    asked(requested_outputs=("A", "B")),
    asked(requested_outputs=("B", "A")),
    asked(parameters={"k": 1}),
    asked(parameters={"k": True}),
    asked(parameters={"k": "1"}),
    asked(parameters={"k": 1.0}),
    asked(sequence=Sequence(1, True, False)),
    asked(words(b"ab", b"c")),
    asked(words(b"a", b"bc")),
    asked(words(b"abc")),
    asked(np.zeros(4, ml_dtypes.bfloat16)),
    asked(np.zeros(4, np.float16)),
    asked(np.zeros((0, 4), np.float16)),
    asked(np.zeros((), np.float16)),
]


def test_everything_that_could_change_the_answer_changes_the_key() -> None:
    keys = [key_of(one) for one in DIFFERENT]
    assert len(set(keys)) == len(DIFFERENT)


def test_the_least_recently_used_answer_goes_first() -> None:
    cache = ResponseCache(3)
    owner = cache.join()
    for key in (b"a", b"b", b"c"):
        cache.put(owner, key, kept(1))
    cache.get(owner, b"a")
    cache.put(owner, b"d", kept(1))
    assert [cache.get(owner, key) is not None for key in (b"a", b"b", b"c", b"d")] == [
        True,
        False,
        True,
        True,
    ]


def test_the_cache_never_holds_more_bytes_than_it_may() -> None:
    cache = ResponseCache(10)
    owner = cache.join()
    for number, size in enumerate((4, 4, 4, 11, 9, 2, 10)):
        cache.put(owner, bytes([number]), kept(size))
        assert cache.used_bytes <= 10
    assert (len(cache), cache.used_bytes) == (1, 10)


def test_replacing_an_answer_frees_what_it_took() -> None:
    cache = ResponseCache(10)
    owner = cache.join()
    cache.put(owner, b"a", kept(6))
    cache.put(owner, b"a", kept(5))
    assert (len(cache), cache.used_bytes) == (1, 5)


def test_an_owner_that_leaves_takes_its_answers_along_and_nobody_elses() -> None:
    cache = ResponseCache(10)
    one, two = cache.join(), cache.join()
    cache.put(one, b"a", kept(1))
    cache.put(two, b"a", kept(2))
    cache.leave(one)
    cache.leave(one)
    cache.put(one, b"b", kept(1))
    assert cache.get(one, b"a") is None
    assert (len(cache), cache.used_bytes) == (1, 2)


def test_what_is_kept_is_a_copy_and_counts_its_bytes() -> None:
    batch = np.zeros((8, 100), np.float32)
    answer = answer_of(InferResponse("", "m", 1, {"Y": batch[2:3]}, {"k": 1}))
    batch[:] = 1
    assert answer.outputs["Y"].sum() == 0
    assert not answer.outputs["Y"].flags.writeable
    assert (answer.size_bytes, answer.parameters) == (ENTRY_BYTES + 400, {"k": 1})


def test_long_strings_count_too() -> None:
    answer = answer_of(InferResponse("", "m", 1, {"Y": words(b"x" * 10_000)}))
    assert answer.size_bytes > 10_000


def cached(instance: GatedEcho, cache: ResponseCache, counters: Counters) -> CachedScheduler:
    behind = BatchScheduler(
        BatchQueue(QueuePolicy(100)),
        MergeRules(max_rows=4),
        [instance],
        counters,
        CoreTokens(2),
    )
    return CachedScheduler(behind, cache, counters)


def test_a_repeated_request_is_answered_without_an_execution() -> None:
    async def act() -> None:
        instance, counters, cache = GatedEcho(), Counters(), ResponseCache(MIB)
        instance.gate.set()
        scheduler = cached(instance, cache, counters)
        first = await scheduler.submit(asked(id="a")).one()
        again = scheduler.submit(asked(id="b"))
        assert again.ended
        second = again.result()
        assert (first.id, second.id) == ("a", "b")
        assert np.array_equal(first.outputs["X"], second.outputs["X"])
        assert len(instance.batches) == 1
        assert (counters.success, counters.executions, counters.inferences) == (2, 1, 1)
        assert (counters.cache_hits, counters.cache_misses) == (1, 1)
        assert counters.request_histogram.sum_ns == counters.success_ns
        await scheduler.close()
        assert (len(cache), cache.used_bytes) == (0, 0)

    asyncio.run(act())


def test_a_failed_request_is_not_remembered() -> None:
    async def act() -> None:
        instance, counters, cache = GatedEcho(), Counters(), ResponseCache(MIB)
        instance.gate.set()
        scheduler = cached(instance, cache, counters)
        scheduler.submit(asked(requested_outputs=("NO",))).then(lambda reply: None)
        ended = scheduler.submit(asked(requested_outputs=("NO",)))
        with pytest.raises(Exception, match="did not produce"):
            await ended.one()
        assert (len(cache), counters.cache_hits) == (0, 0)
        await scheduler.close()

    asyncio.run(act())


def test_a_draining_scheduler_refuses_even_what_it_knows() -> None:
    async def act() -> None:
        instance, counters = GatedEcho(), Counters()
        instance.gate.set()
        scheduler = cached(instance, ResponseCache(MIB), counters)
        await scheduler.submit(asked()).one()
        await scheduler.drain(time.monotonic_ns() + 1_000_000_000)
        with pytest.raises(Draining):
            scheduler.submit(asked())
        await scheduler.close()

    asyncio.run(act())
