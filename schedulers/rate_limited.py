"""Schedulers whose instances execute only while they hold the resources of their config.

`schedulers.build` chooses them under `--rate-limit=execution_count`; without, nothing of them is on
the path. An execution takes its resources and its core tokens in one turn of the loop and holds
none while it waits for the other, so that no two schedulers wait for each other.
"""

import asyncio
from collections.abc import Callable, Sequence

from backends.limits import NO_LIMIT, ExecutionLimit
from backends.seam import Instance
from schedulers.batching import BatchScheduler
from schedulers.counters import Counters
from schedulers.instance_thread import InstanceThread, Run
from schedulers.policy.cores import CoreTokens
from schedulers.policy.merge import MergeRules
from schedulers.policy.queue import BatchQueue
from schedulers.policy.resource_limits import ResourceLimiter
from schedulers.policy.slots import SequenceRules
from schedulers.sequences.batcher import SequenceBatcher


class LimitedInstanceThread(InstanceThread):
    """Holds its instance's resources while a batch executes, and gives them back with its end."""

    def __init__(
        self,
        instance: Instance,
        loop: asyncio.AbstractEventLoop,
        done: Callable[[Run], None],
        number: int,
        limiter: ResourceLimiter,
    ) -> None:
        super().__init__(instance, loop, done, number)
        self._limiter = limiter

    def start(self, run: Run) -> None:
        self._limiter.take(self.instance)
        super().start(run)

    def run_inline(self, run: Run) -> None:
        self._limiter.take(self.instance)
        super().run_inline(run)

    async def close(self, patience_s: float, give_up: Callable[[Run], None]) -> None:
        try:
            await super().close(patience_s, give_up)
        finally:
            self._limiter.unregister(self.instance)
            wake_ready(self._limiter)

    def _ended(self, run: Run) -> None:
        self._limiter.give(self.instance)
        super()._ended(run)


class LimitedExecutions(BatchScheduler):
    """What every scheduler under the rate limiter does; `_limiter` is there before `__init__`."""

    _limiter: ResourceLimiter

    async def close(self) -> None:
        self._limiter.leave(self)
        await super().close()

    def _make_thread(self, instance: Instance, number: int) -> InstanceThread:
        return LimitedInstanceThread(instance, self._loop, self._done, number, self._limiter)

    def _calling(self, thread: InstanceThread) -> None:
        super()._calling(thread)
        self._limiter.waits_for_call(thread.instance)
        wake_ready(self._limiter)

    def _done(self, run: Run) -> None:
        super()._done(run)
        wake_ready(self._limiter)


class RateLimitedScheduler(LimitedExecutions):
    """Dynamic batching on instances that wait for resources and for each other."""

    def __init__(
        self,
        queue: BatchQueue,
        rules: MergeRules,
        instances: Sequence[Instance],
        counters: Counters,
        tokens: CoreTokens,
        limiter: ResourceLimiter,
        limit: ExecutionLimit = NO_LIMIT,
    ) -> None:
        """`instances` are registered with `limiter`, as are those of a later `resize`."""
        self._limiter = limiter
        self._lacks = False
        super().__init__(queue, rules, instances, counters, tokens, limit)

    def _pump(self) -> None:
        super()._pump()
        if not self._queue:
            self._leave_limiter()

    def _free_lane(self) -> InstanceThread | None:
        free = [thread for thread in self._threads if thread.free]
        free.sort(key=lambda thread: self._limiter.turn(thread.instance))
        for thread in free:
            if self._limiter.may_start(thread.instance, self):
                self._lacks = False
                return thread
        self._lacks = True
        return None

    def _leave_line(self) -> None:
        super()._leave_line()
        if not self._lacks:
            self._leave_limiter()

    def _leave_limiter(self) -> None:
        self._limiter.leave(self)
        wake_ready(self._limiter)


class RateLimitedSequenceBatcher(LimitedExecutions, SequenceBatcher):
    """Sequences whose executions wait for resources, each on the instance that has its state."""

    def __init__(
        self,
        rules: SequenceRules,
        instances: Sequence[Instance],
        counters: Counters,
        tokens: CoreTokens,
        limiter: ResourceLimiter,
        limit: ExecutionLimit = NO_LIMIT,
        keeps_state: bool = False,
    ) -> None:
        """`instances` are registered with `limiter`, as are those of a later `resize`."""
        self._limiter = limiter
        self._lacking: set[Instance] = set()
        super().__init__(rules, instances, counters, tokens, limit, keeps_state)

    def _start_what_can(self, now_ns: int) -> int:
        self._lacking.clear()
        return super()._start_what_can(now_ns)

    def _may_start(self, thread: InstanceThread) -> bool:
        if self._limiter.may_start(thread.instance, self):
            return True
        self._lacking.add(thread.instance)
        return False

    def _leave_line(self) -> None:
        super()._leave_line()
        self._limiter.leave(self, self._lacking)
        wake_ready(self._limiter)


def wake_ready(limiter: ResourceLimiter) -> None:
    """Let those ask again that can have what they wait for."""
    for waiting in limiter.ready():
        waiting.wake()
