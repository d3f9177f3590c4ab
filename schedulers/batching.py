"""The pump: takes requests in, forms batches, hands them to instances, answers.

Requests come from `server.dataplane`; what to run is decided in `schedulers.policy`: `queue`
(order, timeouts), `merge` (batches), `cores` (tokens) and `inline` (short executions, which run
here); `schedulers.instance_thread` executes.
Everything here runs on the event loop's thread.
"""

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from functools import partial

from backends.errors import InstanceDied
from backends.limits import NO_LIMIT, ExecutionLimit
from backends.process.instance import HostedInstance
from backends.seam import BatchResult, Instance
from schedulers.counters import Counters
from schedulers.errors import DeadlineExceeded, Draining, QueueFull, ShutDown
from schedulers.group_run import GroupRun, group_rows
from schedulers.instance_thread import InstanceThread, Run, fail
from schedulers.policy.cores import BRIEF_NS, CoreTokens, Lease
from schedulers.policy.inline import MOST_INLINE, InlinePolicy
from schedulers.policy.merge import MergeRules, cut
from schedulers.policy.queue import NEVER, BatchQueue, Ticket
from schedulers.request import InferRequest
from schedulers.request_groups import GroupMember, GroupTicket
from schedulers.streams import Streams

CLOSE_PATIENCE_S = 10.0
"""How long an execution may go on after its scheduler was closed."""

SHUT_DOWN = "the server unloaded this model before the request could be answered"

REVIVAL_PATIENCE_NS = 10_000_000_000
"""How long queued requests wait for a dead instance to come back."""


class BatchScheduler:
    """Dynamic batching; with `MergeRules(max_rows=0)` every request runs alone."""

    def __init__(
        self,
        queue: BatchQueue,
        rules: MergeRules,
        instances: Sequence[Instance],
        counters: Counters,
        tokens: CoreTokens,
        limit: ExecutionLimit = NO_LIMIT,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue = queue
        self._rules = rules
        self._counters = counters
        self._tokens = tokens
        self._order: deque[Run] | None = deque() if rules.preserve_order else None
        self._hold_until = rules.hold_until
        self._threads: list[InstanceThread] = []
        self._retiring: set[asyncio.Task[None]] = set()
        self._pumping = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ns = NEVER
        self._dead_since_ns = 0
        self._accepting = True
        self._close_patience_s = CLOSE_PATIENCE_S
        self._limit = limit
        self._look_timer: asyncio.TimerHandle | None = None
        self._idle = asyncio.Event()
        self._inflight = 0
        self._grouped = False
        self._expected_ns = BRIEF_NS
        self._inline = InlinePolicy()
        self._streams = Streams(self._loop, counters, self._stream_ended)
        self._use(instances)

    # the seam

    def submit(self, request: InferRequest, ticket: Ticket | None = None) -> Ticket:
        """As the seam says; `ticket`: one already made for the request."""
        if not self._accepting:
            raise Draining(f"{request.model} version {request.version} is being unloaded")
        if ticket is None:
            ticket = Ticket(request)
        try:
            self._queue.push(ticket, request.arrived_ns)
        except QueueFull:
            self._left(self._queue.forget_cancelled(), cancelled=True)
            self._queue.push(ticket, request.arrived_ns)
        self._inflight += 1
        self._counters.pending += 1
        if not self._pumping:
            self._pumping = True
            self._loop.call_soon(self._pump)
        return ticket

    @property
    def group_rows(self) -> int:
        """Rows that the requests of one `submit_group` may have together; 0 where it takes none."""
        return group_rows(self._rules, self._threads)

    def submit_group(self, ticket: GroupTicket) -> list[GroupMember]:
        """Take in as many of its members as may wait, from the first; the others. Raises Draining.
        A group is one ticket: a batch has all of it, or nothing."""
        if not self._accepting:
            raise Draining(f"{ticket.request.model} version {ticket.request.version} is unloaded")
        refused, forgotten = ticket.push_to(self._queue)
        self._left(forgotten, cancelled=True)
        self._grouped = True
        self._inflight += ticket.count
        self._counters.pending += ticket.count
        self.wake()
        return refused

    def inflight(self) -> int:
        return self._inflight

    async def drain(self, until_ns: int) -> None:
        self._accepting = False
        self._hold_until = 0
        self.wake()
        self._idle.clear()
        if self._inflight:
            try:
                async with asyncio.timeout(seconds_until(until_ns)):
                    await self._idle.wait()
            except TimeoutError:
                self._close_patience_s = 0.0  # they have had their time

    async def close(self) -> None:
        self._accepting = False
        self._refuse(self._queue.take(len(self._queue)), ShutDown(SHUT_DOWN))
        self._tokens.leave(self)
        for timer in (self._timer, self._look_timer):
            if timer is not None:
                timer.cancel()
        self._streams.fail(None, ShutDown(SHUT_DOWN))
        threads, self._threads = self._threads, []
        closing = [thread.close(self._close_patience_s, _give_up) for thread in threads]
        await asyncio.gather(*closing, *self._retiring)

    async def resize(self, instances: Sequence[Instance], until_ns: int) -> None:
        """Run on exactly these instances from now on; return when those no longer among them are
        closed: when their batch and their streams have ended, or `time.monotonic_ns` passes
        `until_ns`. Queue and counters stay."""
        retiring = self._use(instances, until_ns)
        if retiring:
            await asyncio.wait(retiring)

    def _use(self, instances: Sequence[Instance], until_ns: int = 0) -> list[asyncio.Task[None]]:
        """Run on exactly these; the tasks that close the others."""
        retiring = []
        wanted = {id(instance) for instance in instances}
        known = {id(thread.instance) for thread in self._threads}
        for thread in [thread for thread in self._threads if id(thread.instance) not in wanted]:
            self._threads.remove(thread)
            task = self._loop.create_task(self._retire(thread, until_ns))
            self._retiring.add(task)
            retiring.append(task)
            task.add_done_callback(self._retiring.discard)
        for number, instance in enumerate(instances):
            if id(instance) not in known:
                instance.changed = self._changed
                thread = self._make_thread(instance, number)
                self._threads.append(thread)
                if isinstance(instance, HostedInstance):
                    instance.calling = partial(self._calling, thread)
        self.wake()
        return retiring

    def _make_thread(self, instance: Instance, number: int) -> InstanceThread:
        return InstanceThread(instance, self._loop, self._done, number)

    async def _retire(self, thread: InstanceThread, until_ns: int) -> None:
        try:
            async with asyncio.timeout(seconds_until(until_ns)):
                await thread.all_streamed()
        except TimeoutError:
            self._streams.fail_lane(thread, ShutDown(SHUT_DOWN))
        await thread.close(seconds_until(until_ns), _give_up)

    def wake(self) -> None:
        """Look at the queue again, once, before the loop next waits."""
        if not self._pumping:
            self._pumping = True
            self._loop.call_soon(self._pump)

    # the pump

    def _changed(self) -> None:
        """From any thread: an instance became ready, or died."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.wake)

    def _pump(self) -> None:
        self._pumping = False
        if self._queue:
            now_ns = time.monotonic_ns()
            again_ns = self._start_what_can(now_ns)
            if self._queue:
                self._set_timer(min(again_ns, self._queue.next_expiry_ns), now_ns)
        elif self._tokens.next() is self:
            self._leave_line()

    def _start_what_can(self, now_ns: int) -> int:
        """Start batches until something is missing; when to look again if nothing happens."""
        queue = self._queue
        if now_ns >= queue.next_expiry_ns:
            self._refuse(queue.expire(now_ns), DeadlineExceeded("Request timeout expired"))
        if len(queue) < self._hold_until:
            return NEVER
        self._hold_until = inline = 0
        while queue:
            if inline:
                if inline == MOST_INLINE:
                    self.wake()
                    return NEVER
                now_ns = time.monotonic_ns()
            if dropped := queue.drop_cancelled():
                self._left(dropped, cancelled=True)
            thread = self._free_lane()
            if thread is None or not queue:
                self._leave_line()
                return self._revival_ns(now_ns)
            take, again_ns = cut(queue, self._rules, now_ns)
            if not take:
                self._leave_line()
                return again_ns
            cores = thread.instance.cores
            lease = self._tokens.take(self, cores, now_ns, self._expected_ns)
            if lease is None:
                return self._tokens.overdue_ns() or NEVER
            inline += self._start(thread, lease, queue.take(take), now_ns)
        self._leave_line()
        return NEVER

    def _leave_line(self) -> None:
        """Let those behind have the tokens that this scheduler has no use for."""
        tokens = self._tokens
        tokens.leave(self)
        waiting = tokens.next()
        if waiting is not None and tokens.free:
            waiting.wake()

    def _free_lane(self) -> InstanceThread | None:
        for thread in self._threads:
            if thread.free:
                return thread
        return None

    def _revival_ns(self, now_ns: int) -> int:
        """When to give up on a model none of whose instances is alive; NEVER if one is."""
        if any(thread.instance.ready for thread in self._threads):
            self._dead_since_ns = 0
            return NEVER
        self._dead_since_ns = self._dead_since_ns or now_ns
        give_up_ns = self._dead_since_ns + REVIVAL_PATIENCE_NS
        if now_ns < give_up_ns:
            return give_up_ns
        waiting = self._queue.take(len(self._queue))
        self._refuse(waiting, InstanceDied("no instance of the model recovered in time"))
        return NEVER

    def _set_timer(self, at_ns: int, now_ns: int) -> None:
        if at_ns >= self._timer_ns:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ns = at_ns
        self._timer = self._loop.call_later(max(0, at_ns - now_ns) / 1e9, self._time_is_up)

    def _time_is_up(self) -> None:
        self._timer, self._timer_ns = None, NEVER
        self._pump()

    def _start(
        self, thread: InstanceThread, lease: Lease, tickets: list[Ticket], now_ns: int
    ) -> bool:
        """Whether the batch has run already, on the loop."""
        live = [ticket for ticket in tickets if not ticket.cancelled]
        if len(live) < len(tickets):
            self._left(sum(one.count for one in tickets if one.cancelled), cancelled=True)
        kind: type[Run] = Run
        if self._grouped and GroupRun.fits(live):
            self._left(sum(ticket.drop_cancelled() for ticket in live), cancelled=True)
            kind = GroupRun
        run = kind(live, self._rules.batched, now_ns, lease)
        self._counters.pending -= run.requests
        if thread.loop_safe and self._inline.may_run(run.rows, self._inflight == 1, now_ns):
            if self._order is not None:
                self._order.append(run)
            thread.run_inline(run)
            return True
        self._launch(thread, run)
        return False

    def _launch(self, thread: InstanceThread, run: Run) -> None:
        if thread.streams:
            self._streams.open(run, thread)
        elif self._order is not None:
            self._order.append(run)
        thread.start(run)
        if self._look_timer is None and self._limit.secs:
            self._look_timer = self._loop.call_later(self._limit.secs / 4, self._look)

    def _look(self) -> None:
        """Does any instance on a thread of ours hang? Armed while batches start or run."""
        self._look_timer = None
        now_ns = time.monotonic_ns()
        for thread in self._threads:
            run = thread.hangs(now_ns - int(self._limit.secs * 1e9))
            if run is not None and not run.abandoned:
                thread.abandon(run)
                self._abandon(run, now_ns)
        if any(thread.running for thread in self._threads):
            self._look_timer = self._loop.call_later(self._limit.secs / 4, self._look)

    def _abandon(self, run: Run, now_ns: int) -> None:
        """Its thread cannot be ended; but nobody need wait for it."""
        run.fail_hung(self._limit, self._counters, now_ns)
        self._ended(run.requests)
        if self._order is not None:
            self._order.remove(run)

    def hung(self) -> int:
        """Instances on threads of this process that are out of use because they hang."""
        return sum(thread.hung for thread in self._threads)

    def _calling(self, thread: InstanceThread) -> None:
        """Its model waits for another one, which may need the cores."""
        if thread.running is not None:
            self._tokens.give(thread.running.lease)
            waiting = self._tokens.next()
            if waiting is not None:
                waiting.wake()

    def _done(self, run: Run) -> None:
        """On the loop: a lane has an outcome."""
        self._tokens.give(run.lease)
        if run.cpu_ns:
            self._inline.ran(run.rows, run.cpu_ns, run.started_ns)
        self._expected_ns += (run.busy_ns - self._expected_ns) // 8  # a moving average
        waiting = self._tokens.next()
        if waiting is not None:
            waiting.wake()
        if self._queue:
            self.wake()
        if run.outlets:
            self._taken_in(run)
        elif run.abandoned:
            self.wake()
        elif self._order is None:
            self._answer(run)
        else:
            while self._order and self._order[0].outcome is not None:
                self._answer(self._order.popleft())

    def _answer(self, run: Run) -> None:
        run.answer(self._counters, time.monotonic_ns())
        self._ended(run.requests)

    def _taken_in(self, run: Run) -> None:
        """A decoupled model has taken a batch in, or has failed to."""
        if isinstance(run.outcome, BatchResult):
            run.count_execution(run.outcome, self._counters)
        elif run.outcome is not None:
            self._streams.fail(set(run.tickets), run.outcome)

    def _stream_ended(self, _ticket: Ticket) -> None:
        self._ended(1)
        if self._queue:
            self.wake()

    def _refuse(self, tickets: Sequence[Ticket], error: Exception) -> None:
        now_ns = time.monotonic_ns()
        for ticket in tickets:
            fail(ticket, error, self._counters, now_ns)
        self._left(sum(ticket.count for ticket in tickets), cancelled=False)

    def _left(self, count: int, *, cancelled: bool) -> None:
        """`count` requests left the queue without having run."""
        if count:
            self._counters.pending -= count
            if cancelled:
                self._counters.failure["CANCELED"] += count
            self._ended(count)

    def _ended(self, count: int) -> None:
        self._inflight -= count
        if not self._inflight:
            self._idle.set()


def _give_up(run: Run) -> None:
    for ticket in run.tickets:
        ticket.fail(ShutDown(SHUT_DOWN))


def seconds_until(until_ns: int) -> float:
    return max(0.0, (until_ns - time.monotonic_ns()) / 1e9)
