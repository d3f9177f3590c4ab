"""Requests of an ensemble that arrive together: one call of each step, and each ends by itself."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence, Set
from contextlib import asynccontextmanager
from itertools import pairwise, permutations
from random import Random

import numpy as np
import pytest

from backends.errors import ExecutionFailed
from schedulers.batching import BatchScheduler
from schedulers.counters import Counters
from schedulers.ensembles.policy.compile import CompiledEnsemble, compile_ensemble
from schedulers.ensembles.scheduler import EnsembleScheduler
from schedulers.ensembles.served_ensemble import MOST_PLANS, ServedEnsemble, find_all
from schedulers.errors import DeadlineExceeded, EnsembleFailed, QueueFull, ShutDown
from schedulers.instance_thread import MOST_NAMED
from schedulers.policy.cores import CoreTokens
from schedulers.policy.merge import MergeRules
from schedulers.policy.queue import BatchQueue, QueuePolicy, Ticket
from support.ensembles import SchedulerCaller, graph_of, signature
from support.schedulers import GatedEcho, request

pytestmark = pytest.mark.anyio
FAR_S = 3600
STEPS = 3


class Scene:
    """An ensemble of three steps, all of one model that answers once its gate is open."""

    def __init__(
        self, error: BaseException | None, most_waiting: int, most_rows: int, preferred: Set[int]
    ) -> None:
        self.echo = GatedEcho(error=error)
        self.inner, self.own = Counters(), Counters()
        queue = BatchQueue(QueuePolicy(most_waiting))
        rules = MergeRules(max_rows=most_rows, preferred=frozenset(preferred))
        self.model = BatchScheduler(queue, rules, [self.echo], self.inner, CoreTokens(2))
        own = signature("m", {"X": "FP32 2"}, {"Y": "FP32 2"})
        one = signature("one", {"X": "FP32 2"}, {"X": "FP32 2"})
        caller = SchedulerCaller({"one": (one, self.model)}, groups=True)
        tensors = ["X", "t1", "t2", "Y"]
        steps = [("one", {"X": read}, {"X": written}) for read, written in pairwise(tensors)]
        graph = graph_of(own, *steps)
        compiled = compile_ensemble(graph, own, find_all(graph, caller.signatures))
        assert isinstance(compiled, CompiledEnsemble)
        ensemble = ServedEnsemble(graph, own, compiled, caller.signatures)
        self.scheduler = EnsembleScheduler(ensemble, caller, self.own, 100)

    def ask(self, *values: float) -> list[Ticket]:
        now_ns = time.monotonic_ns()
        return [self.scheduler.submit(request(value=one, arrived_ns=now_ns)) for one in values]

    async def executing(self) -> None:
        """Until the model has a batch."""
        await asyncio.to_thread(self.echo.started.acquire)


@asynccontextmanager
async def scene(
    error: BaseException | None = None,
    most_waiting: int = 100,
    most_rows: int = 8,
    preferred: Set[int] = frozenset(),
) -> AsyncIterator[Scene]:
    made = Scene(error, most_waiting, most_rows, preferred)
    async with asyncio.timeout(60):
        yield made
        made.echo.gate.set()
        await made.scheduler.drain(time.monotonic_ns() + FAR_S * 10**9)
        await made.model.drain(time.monotonic_ns() + FAR_S * 10**9)
        assert (made.scheduler.inflight(), made.model.inflight(), made.inner.pending) == (0, 0, 0)
        await made.scheduler.close()
        await made.model.close()


async def values(tickets: Sequence[Ticket]) -> list[float]:
    return [float((await ticket.one()).outputs["Y"][0, 0]) for ticket in tickets]


async def test_requests_of_one_turn_are_one_batch_of_each_step_and_counted_one_by_one() -> None:
    async with scene() as made:
        made.echo.gate.set()
        assert await values(made.ask(1, 2, 3)) == [1, 2, 3]
        assert made.echo.batches == [[1, 1, 1]] * STEPS
        assert (made.inner.success, made.inner.executions, made.inner.inferences) == (9, 3, 9)
        assert (made.own.success, made.own.executions, made.own.inferences) == (3, 3, 3)
        assert [(one.answered, one.rows) for one in made.own.steps] == [(3, 3)] * STEPS


async def test_a_group_has_no_more_rows_than_a_batch_of_its_steps() -> None:
    async with scene(most_rows=2) as made:
        made.echo.gate.set()
        assert await values(made.ask(1, 2, 3)) == [1, 2, 3]
        assert max(sum(batch) for batch in made.echo.batches) == 2


async def test_preferred_batch_sizes_are_those_of_requests_that_come_alone() -> None:
    async with scene(preferred={2, 6}) as made:
        made.echo.gate.set()
        assert await values(made.ask(1, 2, 3, 4)) == [1, 2, 3, 4]
        assert made.echo.batches == [[1, 1]] * 2 * STEPS


async def test_who_goes_while_the_group_waits_is_not_executed() -> None:
    async with scene() as made:
        first = made.ask(0)
        await made.executing()
        waiting = made.ask(1, 2, 3)
        await asyncio.sleep(0)  # the group is with the model, whose instance is busy
        waiting[1].cancel()
        made.echo.gate.set()
        assert await values([*first, waiting[0], waiting[2]]) == [0, 1, 3]
        assert sum(map(sum, made.echo.batches)) == 3 * STEPS
        assert made.inner.failure["CANCELED"] == made.own.failure["CANCELED"] == 1
        assert made.own.steps[0].cancelled == 1


async def test_a_group_that_nobody_waits_for_leaves_the_queue() -> None:
    async with scene() as made:
        first = made.ask(0)
        await made.executing()
        waiting = made.ask(1, 2)
        await asyncio.sleep(0)
        for ticket in waiting:
            ticket.cancel()
        assert made.scheduler.inflight() == 1
        made.echo.gate.set()
        assert await values(first) == [0]
        assert made.inner.failure["CANCELED"] == 2


async def test_those_of_a_waiting_group_who_have_gone_leave_room_in_the_queue() -> None:
    async with scene(most_waiting=8) as made:
        now_ns = time.monotonic_ns()
        alone = [made.model.submit(request(arrived_ns=now_ns))]
        await made.executing()
        waiting = made.ask(*range(1, 9))
        await asyncio.sleep(0)
        for ticket in waiting[1:]:
            ticket.cancel()
        alone.append(made.model.submit(request(arrived_ns=now_ns)))
        more = made.ask(*range(10, 16))
        await asyncio.sleep(0)
        made.echo.gate.set()
        assert await values([waiting[0], *more]) == [1, *range(10, 16)]
        for one in alone:
            await one.one()
        assert sum(map(sum, made.echo.batches)) == len(alone) + 7 * STEPS
        assert made.inner.failure["CANCELED"] == made.own.failure["CANCELED"] == 7


async def test_the_log_names_the_requests_of_a_group_and_counts_those_beyond_its_bound(
    caplog: pytest.LogCaptureFixture,
) -> None:
    most = MOST_NAMED + 2
    async with scene(error=ZeroDivisionError("bug"), most_rows=most) as made:
        made.echo.gate.set()
        now_ns = time.monotonic_ns()
        ids = [f"r{number}" for number in range(most)]
        asked = [made.scheduler.submit(request(id=one, arrived_ns=now_ns)) for one in ids]
        for ticket in asked:
            with pytest.raises(Exception, match="in ensemble 'm'"):
                await ticket.one()
    named = ", ".join(ids[:MOST_NAMED])
    assert f"model 'one' version 1, request ids {named}, and 2 more: its backend" in caplog.text


async def test_a_deadline_ends_the_request_that_has_it_and_no_other() -> None:
    async with scene() as made:
        now_ns = time.monotonic_ns()
        deadlines = [0, now_ns + 1, now_ns + FAR_S * 10**9]
        late = [
            made.scheduler.submit(request(value=1, arrived_ns=now_ns, deadline_ns=deadline))
            for deadline in deadlines
        ]
        with pytest.raises(DeadlineExceeded, match="Request timeout expired"):
            await late[1].one()
        made.echo.gate.set()
        assert await values([late[0], late[2]]) == [1, 1]


async def test_an_input_that_a_step_does_not_take_is_one_requests_error() -> None:
    async with scene() as made:
        made.echo.gate.set()
        good, empty = made.ask(1), request(arrived_ns=time.monotonic_ns())
        empty.inputs["X"] = np.zeros((1, 0), np.float32)  # type: ignore[index]
        refused = made.scheduler.submit(empty)
        with pytest.raises(EnsembleFailed, match=r"^in ensemble 'm', no columns$"):
            await refused.one()
        assert await values(good) == [1]
        assert [(one.answered, one.failed) for one in made.own.steps] == [(1, 1), (1, 0), (1, 0)]


async def test_those_for_whom_the_steps_queue_has_no_room_are_refused() -> None:
    async with scene(most_waiting=2) as made:
        made.echo.gate.set()
        asked = made.ask(1, 2, 3)
        with pytest.raises(QueueFull, match=r"^in ensemble 'm', no room$"):
            await asked[2].one()
        assert await values(asked[:2]) == [1, 2]
        counted = [(one.answered, one.failed, one.cancelled) for one in made.own.steps]
        assert counted == [(2, 1, 0), (2, 0, 0), (2, 0, 0)]


async def test_a_group_whose_others_go_when_one_is_refused_is_not_executed() -> None:
    async with scene(most_waiting=2) as made:
        made.echo.gate.set()
        asked = made.ask(1, 2, 3)
        for ticket in asked[:2]:
            asked[2].watch(lambda _, other=ticket: other.cancel())  # type: ignore[misc]
        with pytest.raises(QueueFull):
            await asked[2].one()
        assert made.scheduler.inflight() == 0
        (counted, *_) = [(one.answered, one.failed, one.cancelled) for one in made.own.steps]
        assert counted == (0, 1, 2)
        assert not made.echo.batches


async def test_a_failed_execution_fails_all_whose_rows_it_had() -> None:
    async with scene(error=ExecutionFailed("no luck")) as made:
        made.echo.gate.set()
        for ticket in made.ask(1, 2):
            with pytest.raises(ExecutionFailed, match=r"^in ensemble 'm', no luck$"):
                await ticket.one()
        assert made.inner.failure["BACKEND"] == made.own.failure["BACKEND"] == 2
        assert made.own.steps[0].failed == 2


async def test_closing_ends_the_requests_of_every_group() -> None:
    async with scene() as made:
        asked = made.ask(1, 2)
        await made.executing()
        await made.scheduler.close()
        for ticket in asked:
            with pytest.raises(ShutDown):
                await ticket.one()


async def test_many_orders_of_outputs_in_one_turn_each_get_what_they_asked_for() -> None:
    async with outputs_scene() as (scheduler, _):
        orders = [order for count in (1, 2, 3, 4) for order in permutations("ABCD", count)]
        assert len(orders) == MOST_PLANS
        orders *= 6
        Random(7).shuffle(orders)
        orders += [tuple(one * 2) for one in orders]
        asked = [scheduler.submit(request(requested_outputs=one)) for one in orders]
        found = [tuple((await ticket.one()).outputs) for ticket in asked]
        assert found == [tuple(dict.fromkeys(one)) for one in orders]


async def test_a_reload_of_a_callee_in_the_same_turn_mixes_no_plans() -> None:
    async with outputs_scene() as (scheduler, reload):
        asked = []
        for name in "ABCD" * 50:
            asked.append((name, scheduler.submit(request(requested_outputs=(name,)))))
            reload()
        for name, ticket in asked:
            assert list((await ticket.one()).outputs) == [name]


@asynccontextmanager
async def outputs_scene() -> AsyncIterator[tuple[EnsembleScheduler, Callable[[], None]]]:
    """Of an ensemble with four outputs, a step for each; and what reloads its steps' model."""
    echo = GatedEcho()
    echo.gate.set()
    queue, rules = BatchQueue(QueuePolicy(10**6)), MergeRules(max_rows=8)
    model = BatchScheduler(queue, rules, [echo], Counters(), CoreTokens(2))
    own = signature("m", {"X": "FP32 2"}, dict.fromkeys("ABCD", "FP32 2"))
    one = signature("one", {"X": "FP32 2"}, {"X": "FP32 2"})
    callers = {"one": (one, model)}
    caller = SchedulerCaller(callers, groups=True)
    graph = graph_of(own, *(("one", {"X": "X"}, {"X": name}) for name in "ABCD"))
    compiled = compile_ensemble(graph, own, find_all(graph, caller.signatures))
    assert isinstance(compiled, CompiledEnsemble)
    ensemble = ServedEnsemble(graph, own, compiled, caller.signatures)
    scheduler = EnsembleScheduler(ensemble, caller, Counters(), 10**6)

    def reload() -> None:
        callers["one"] = (one._replace(version=callers["one"][0].version + 1), model)
        assert ensemble.ready

    async with asyncio.timeout(60):
        yield scheduler, reload
        await scheduler.close()
        await model.close()
