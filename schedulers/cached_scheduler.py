"""A scheduler that first looks whether the answer is known.

`server.dataplane` submits here when a model's config enables `response_cache`; what is not known
goes on to the scheduler behind, and its answer is kept on the way back.
"""

import time
from collections.abc import Sequence

from backends.seam import Instance
from schedulers.batching import BatchScheduler
from schedulers.cache import Key, ResponseCache, answer_of, key_of
from schedulers.counters import Counters
from schedulers.errors import Draining
from schedulers.policy.queue import Ticket
from schedulers.request import InferRequest, InferResponse


class CachedScheduler:
    """A `Scheduler` in front of another; counts a hit as success, not as an execution."""

    def __init__(self, behind: BatchScheduler, cache: ResponseCache, counters: Counters) -> None:
        self._behind = behind
        self._cache = cache
        self._counters = counters
        self._owner = cache.join()
        self._accepting = True

    def submit(self, request: InferRequest) -> Ticket:
        if not self._accepting:
            raise Draining(f"{request.model} version {request.version} is being unloaded")
        began_ns = time.monotonic_ns()
        key = key_of(request)
        answer = self._cache.get(self._owner, key)
        if answer is None:
            lookup_ns = time.monotonic_ns() - began_ns
            return self._behind.submit(request, _CachingTicket(request, self, key, lookup_ns))
        ticket = Ticket(request)
        self._count_hit(request, began_ns)
        ticket.send(
            InferResponse(
                request.id, request.model, request.version, answer.outputs, answer.parameters
            )
        )
        return ticket

    def keep(self, key: Key, response: InferResponse, lookup_ns: int) -> None:
        """A miss was answered: remember how."""
        began_ns = time.monotonic_ns()
        self._cache.put(self._owner, key, answer_of(response))
        self._counters.cache_misses += 1
        self._counters.cache_miss_ns += lookup_ns + time.monotonic_ns() - began_ns

    def inflight(self) -> int:
        return self._behind.inflight()

    async def drain(self, until_ns: int) -> None:
        self._accepting = False
        await self._behind.drain(until_ns)

    async def close(self) -> None:
        self._accepting = False
        await self._behind.close()
        self._cache.leave(self._owner)

    async def resize(self, instances: Sequence[Instance], until_ns: int) -> None:
        await self._behind.resize(instances, until_ns)

    def hung(self) -> int:
        return self._behind.hung()

    def _count_hit(self, request: InferRequest, began_ns: int) -> None:
        counters, now_ns = self._counters, time.monotonic_ns()
        total_ns, queue_ns = now_ns - request.arrived_ns, began_ns - request.arrived_ns
        counters.success += 1
        counters.success_ns += total_ns
        counters.queue_ns += queue_ns
        counters.request_histogram.add(total_ns)
        counters.samples.add(total_ns)
        counters.queue_histogram.add(queue_ns)
        counters.cache_hits += 1
        counters.cache_hit_ns += now_ns - began_ns


class _CachingTicket(Ticket):
    """Shows its answer to the cache before anybody reads it."""

    __slots__ = ("_key", "_lookup_ns", "_scheduler")

    def __init__(
        self, request: InferRequest, scheduler: CachedScheduler, key: Key, lookup_ns: int
    ) -> None:
        super().__init__(request)
        self._scheduler = scheduler
        self._key = key
        self._lookup_ns = lookup_ns

    def send(self, response: InferResponse) -> None:
        self._scheduler.keep(self._key, response, self._lookup_ns)
        super().send(response)
