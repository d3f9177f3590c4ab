"""A scheduler over a decoupled model: responses as they come, and every stream ends."""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import numpy as np
import pytest

from backends.errors import BackendError, ExecutionFailed, ModelError
from backends.response_sender import WINDOW
from backends.seam import Batch, BatchResult, ResponsePart, ResponseSender
from schedulers.batching import BatchScheduler
from schedulers.counters import Counters
from schedulers.errors import DeadlineExceeded, ShutDown
from schedulers.policy.cores import CoreTokens
from schedulers.policy.merge import MergeRules
from schedulers.policy.queue import BatchQueue, QueuePolicy
from schedulers.reply import NotOneResponse, Reply
from schedulers.request import InferResponse
from schedulers.streams import MOST_POSITIONS
from support.schedulers import GatedEcho, request

PATIENCE_S = 60


class HandStreamed:
    """Takes batches in and leaves the sending to the test."""

    device = "cpu"
    cores = 1
    streams = True

    def __init__(self) -> None:
        self.ready = True
        self.changed: Callable[[], None] = lambda: None
        self.error: BackendError | None = None
        self.outlets: list[ResponseSender] = []
        self.came = threading.Semaphore(0)
        self.closed = False

    def stream(self, batch: Batch, outlets: Sequence[ResponseSender]) -> BatchResult:
        self.outlets += outlets
        if self.error is not None:
            raise self.error
        for _ in outlets:
            self.came.release()
        return BatchResult((), 1, 2, 3)

    def close(self) -> None:
        self.closed = True


class Scene:
    """One scheduler over one such instance."""

    def __init__(self) -> None:
        self.instance = HandStreamed()
        self.counters = Counters()
        self.scheduler = BatchScheduler(
            BatchQueue(QueuePolicy(100)),
            MergeRules(max_rows=4),
            [self.instance],  # type: ignore[list-item]
            self.counters,
            CoreTokens(2),
        )

    async def opened(self, **fields: Any) -> tuple[Reply, ResponseSender]:
        """A submitted request that the model has taken in, and its outlet."""
        reply = self.scheduler.submit(request(arrived_ns=time.monotonic_ns(), **fields))
        assert await asyncio.to_thread(self.instance.came.acquire, timeout=PATIENCE_S)
        return reply, self.instance.outlets[-1]


def play(act: Callable[[Scene], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        scene = Scene()
        try:
            async with asyncio.timeout(PATIENCE_S):
                await act(scene)
        finally:
            await scene.scheduler.close()
        assert scene.instance.closed
        assert scene.scheduler.inflight() == 0

    asyncio.run(whole())


def part(value: float, last: bool = False, **parameters: Any) -> ResponsePart:
    return ResponsePart({"Y": np.array([value])}, parameters, last)


async def read(reply: Reply, into: list[float]) -> None:
    async for response in reply:
        into.append(value_of(response))


def value_of(response: InferResponse) -> float:
    return float(response.outputs["Y"][0])


def test_responses_arrive_in_order_and_the_last_says_so() -> None:
    async def act(scene: Scene) -> None:
        reply, outlet = await scene.opened(id="a")
        for value in range(3):
            outlet.send(part(value, last=value == 2, k=value))
        got = [response async for response in reply]
        assert [value_of(one) for one in got] == [0, 1, 2]
        assert [one.last for one in got] == [False, False, True]
        assert [one.parameters for one in got] == [{"k": 0}, {"k": 1}, {"k": 2}]

    play(act)


def test_a_request_may_end_without_a_response() -> None:
    async def act(scene: Scene) -> None:
        reply, outlet = await scene.opened()
        outlet.send(ResponsePart(None, last=True))
        assert [one async for one in reply] == []
        assert (scene.counters.success, scene.counters.responses[0].empty) == (1, 1)

    play(act)


def test_a_new_request_starts_while_another_streams() -> None:
    async def act(scene: Scene) -> None:
        first, one = await scene.opened()
        second, two = await scene.opened()
        two.send(part(2, last=True))
        one.send(part(1, last=True))
        assert value_of(await second.one()) == 2
        assert value_of(await first.one()) == 1

    play(act)


def test_a_unary_reader_of_several_responses_is_told_and_the_model_too() -> None:
    async def act(scene: Scene) -> None:
        reply, outlet = await scene.opened()
        for value in range(2):
            outlet.send(part(value))
        with pytest.raises(NotOneResponse, match="exactly one response"):
            await reply.one()
        assert outlet.cancelled
        outlet.send(ResponsePart(None, last=True))

    play(act)


def test_a_slow_reader_stops_the_sender() -> None:
    async def act(scene: Scene) -> None:
        reply, outlet = await scene.opened()
        sent = threading.Semaphore(0)

        def send_all() -> None:
            for value in range(3 * WINDOW):
                outlet.send(part(value))
                sent.release()
            outlet.send(ResponsePart(None, last=True))

        sending = asyncio.create_task(asyncio.to_thread(send_all))
        for _ in range(WINDOW):
            assert await asyncio.to_thread(sent.acquire, timeout=PATIENCE_S)
        assert not await asyncio.to_thread(sent.acquire, timeout=0.05)
        assert [value_of(one) async for one in reply] == list(range(3 * WINDOW))
        await sending

    play(act)


def test_a_cancelled_stream_is_over_for_the_model_when_it_says_so() -> None:
    async def act(scene: Scene) -> None:
        reply, outlet = await scene.opened()
        outlet.send(part(0))
        await anext(reply)
        reply.cancel()
        assert outlet.cancelled
        assert scene.scheduler.inflight() == 1
        outlet.send(part(1))
        outlet.send(ResponsePart(None, last=True))
        await scene.scheduler.drain(time.monotonic_ns() + PATIENCE_S * 1_000_000_000)
        assert scene.scheduler.inflight() == 0
        assert scene.counters.failure["CANCELED"] == 1
        assert scene.counters.responses[1].cancel == 1

    play(act)


def test_a_deadline_ends_a_stream_between_two_responses() -> None:
    async def act(scene: Scene) -> None:
        reply, outlet = await scene.opened(deadline_ns=time.monotonic_ns() + 3_000_000_000)
        outlet.send(part(0))
        got: list[float] = []
        with pytest.raises(DeadlineExceeded):
            await read(reply, got)
        assert got == [0]
        assert outlet.cancelled
        outlet.send(ResponsePart(None, last=True))

    play(act)


def test_an_error_in_the_middle_fails_the_request_after_what_came_before() -> None:
    async def act(scene: Scene) -> None:
        reply, outlet = await scene.opened()
        outlet.send(part(0))
        outlet.send(ResponsePart(ModelError("enough")))
        got: list[float] = []
        with pytest.raises(ModelError, match="enough"):
            await read(reply, got)
        outlet.send(ResponsePart(None, last=True))
        assert got == [0]
        assert scene.counters.failure["BACKEND"] == 1
        assert scene.counters.responses[1].fail == 1

    play(act)


def test_a_batch_the_model_refuses_fails_every_open_request() -> None:
    async def act(scene: Scene) -> None:
        scene.instance.error = ExecutionFailed("no")
        reply = scene.scheduler.submit(request(arrived_ns=time.monotonic_ns()))
        with pytest.raises(ExecutionFailed, match="no"):
            await reply.one()

    play(act)


def test_closing_fails_open_streams_and_what_they_send_later_is_ignored() -> None:
    async def act(scene: Scene) -> None:
        reply, outlet = await scene.opened()
        await scene.scheduler.close()
        with pytest.raises(ShutDown):
            await reply.one()
        assert outlet.cancelled
        outlet.send(ResponsePart(None, last=True))

    play(act)


def test_an_instance_is_not_closed_before_its_streams_have_ended() -> None:
    async def act(scene: Scene) -> None:
        reply, outlet = await scene.opened()
        until_ns = time.monotonic_ns() + 60_000_000_000
        resizing = asyncio.ensure_future(scene.scheduler.resize([], until_ns))
        await asyncio.sleep(0)
        assert not scene.instance.closed
        outlet.send(part(1, last=True))
        assert value_of(await reply.one()) == 1
        await resizing
        assert scene.instance.closed

    play(act)


def test_a_stream_that_never_ends_does_not_keep_its_instance_beyond_the_deadline() -> None:
    async def act(scene: Scene) -> None:
        reply, _ = await scene.opened()
        await scene.scheduler.resize([], time.monotonic_ns())
        assert scene.instance.closed
        with pytest.raises(ShutDown):
            await reply.one()

    play(act)


def test_counters_tell_each_position_of_a_stream() -> None:
    async def act(scene: Scene) -> None:
        reply, outlet = await scene.opened()
        outlet.send(part(0))
        outlet.send(part(1))
        outlet.send(ResponsePart(None, last=True))
        assert len([one async for one in reply]) == 2
        counters = scene.counters
        assert (counters.success, counters.inferences, counters.executions) == (1, 1, 1)
        assert [counters.responses[at].success for at in range(3)] == [1, 1, 0]
        assert [counters.responses[at].empty for at in range(3)] == [0, 0, 1]

    play(act)


def test_endless_answers_do_not_grow_the_statistics_without_end() -> None:
    async def act(scene: Scene) -> None:
        reply, outlet = await scene.opened()
        for value in range(MOST_POSITIONS + 50):
            outlet.send(part(value))
            await anext(reply)
        outlet.send(ResponsePart(None, last=True))
        assert [one async for one in reply] == []
        assert len(scene.counters.responses) == MOST_POSITIONS
        assert scene.counters.responses[MOST_POSITIONS - 1].success == 51

    play(act)


class Hearing(GatedEcho):
    """An ordinary instance that can be told who has left."""

    def __init__(self) -> None:
        super().__init__()
        self.left: list[int] = []

    def cancel(self, batch: Batch, member: int) -> None:
        self.left.append(member)


def test_an_ordinary_model_is_told_while_it_executes_that_a_client_has_left() -> None:
    async def act() -> None:
        instance = Hearing()
        scheduler = BatchScheduler(
            BatchQueue(QueuePolicy(100)),
            MergeRules(max_rows=4),
            [instance],
            Counters(),
            CoreTokens(2),
        )
        replies = [scheduler.submit(request(arrived_ns=time.monotonic_ns())) for _ in range(3)]
        assert await asyncio.to_thread(instance.started.acquire, timeout=PATIENCE_S)
        replies[1].cancel()
        assert instance.left == [1]
        instance.gate.set()
        await replies[0].one()
        replies[0].cancel()
        assert instance.left == [1]
        await scheduler.close()

    asyncio.run(act())
