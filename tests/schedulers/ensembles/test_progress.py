"""Ensembles whose steps are answered at once, as the response cache answers, or not at all."""

import asyncio
import time
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import pytest

from schedulers.calls import ModelCall
from schedulers.counters import Counters, StepCounters
from schedulers.ensembles import progress
from schedulers.ensembles.policy import stream_hold
from schedulers.ensembles.policy.compile import CompiledEnsemble, compile_ensemble
from schedulers.ensembles.policy.stream_hold import MOST_BEHIND
from schedulers.ensembles.scheduler import EnsembleScheduler
from schedulers.ensembles.served_ensemble import ServedEnsemble, find_all
from schedulers.errors import EnsembleFailed
from schedulers.policy.queue import Ticket
from schedulers.reply import Reply
from schedulers.request import InferResponse
from support.ensembles import SchedulerCaller, graph_of, signature
from support.schedulers import request


class AnsweringCaller(SchedulerCaller):
    """Every reply has ended when it is handed over: its output is the input and 1."""

    def call(self, call: ModelCall) -> Reply:
        reply = Reply()
        outputs = {"o": call.inputs["i"] + np.float32(1)}
        reply.send(InferResponse(call.id, call.model, 1, outputs, last=True))
        return reply


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_steps_that_are_answered_at_once_complete_the_request(steps: int) -> None:
    async def answered() -> InferResponse:
        own = signature("m", {"X": "FP32"}, {"Y": "FP32"})
        one = signature("inner", {"i": "FP32"}, {"o": "FP32"})
        tensors = ["X", *(f"t{number}" for number in range(1, steps)), "Y"]
        graph = graph_of(
            own,
            *(("inner", {"i": read}, {"o": written}) for read, written in pairwise(tensors)),
        )
        caller = AnsweringCaller({"inner": (one, None)})  # type: ignore[dict-item]
        compiled = compile_ensemble(graph, own, find_all(graph, caller.signatures))
        assert isinstance(compiled, CompiledEnsemble)
        ensemble = ServedEnsemble(graph, own, compiled, caller.signatures)
        scheduler = EnsembleScheduler(ensemble, caller, Counters(), 4)
        response = await scheduler.submit(request(value=5)).one()
        assert scheduler.inflight() == 0
        await scheduler.close()
        return response

    response = asyncio.run(answered())
    assert response.outputs["Y"].tolist() == [[5 + steps, 5 + steps]]


class SilentCaller(SchedulerCaller):
    """`many` answers a hundred times; `silent` ends without an answer, a turn of the loop later."""

    calls = 0

    def call(self, call: ModelCall) -> Reply:
        reply = Reply()
        if call.model == "many":
            for _ in range(100):
                outputs = {"o": call.inputs["i"]}
                reply.send(InferResponse(call.id, call.model, 1, outputs, last=False))
            reply.close()
        else:
            self.calls += 1
            asyncio.get_running_loop().call_soon(reply.close)
        return reply


def test_a_stream_is_read_on_when_the_steps_behind_it_end_without_an_answer() -> None:
    async def answers() -> int:
        own = signature("m", {"X": "FP32"}, {"Y": "FP32"})
        models = [
            signature(name, {"i": "FP32"}, {"o": "FP32"}, decoupled=True)
            for name in ("many", "silent")
        ]
        steps = ("many", {"i": "X"}, {"o": "t"}), ("silent", {"i": "t"}, {"o": "Y"})
        graph = graph_of(own, *steps, max_inflight=1)
        caller = SilentCaller({one.model: (one, None) for one in models})  # type: ignore[misc]
        compiled = compile_ensemble(graph, own, find_all(graph, caller.signatures))
        assert isinstance(compiled, CompiledEnsemble)
        ensemble = ServedEnsemble(graph, own, compiled, caller.signatures)
        scheduler = EnsembleScheduler(ensemble, caller, Counters(), 4)
        assert [one async for one in scheduler.submit(request())] == []
        await scheduler.close()
        return caller.calls

    assert asyncio.run(asyncio.wait_for(answers(), 60)) == 100


class ManyCaller(SchedulerCaller):
    """`many` answers a hundred times, and `twice` twice, each time a turn of the loop later."""

    def call(self, call: ModelCall) -> Reply:
        reply, times = Reply(), 100 if call.model == "many" else 2

        def send(left: int) -> None:
            if not left:
                reply.close()
                return
            outputs = {"o": call.inputs["i"]}
            reply.send(InferResponse(call.id, call.model, 1, outputs, last=False))
            loop.call_soon(send, left - 1)

        loop = asyncio.get_running_loop()
        loop.call_soon(send, times)
        return reply


def test_calls_that_wait_for_a_streaming_step_do_not_keep_its_own_responses_from_being_read() -> (
    None
):
    async def answers() -> int:
        own = signature("m", {"X": "FP32"}, {"Y": "FP32"})
        models = [
            signature(name, {"i": "FP32"}, {"o": "FP32"}, decoupled=True)
            for name in ("many", "twice")
        ]
        steps = ("many", {"i": "X"}, {"o": "t"}), ("twice", {"i": "t"}, {"o": "Y"})
        graph = graph_of(own, *steps, max_inflight=1)
        caller = ManyCaller({one.model: (one, None) for one in models})  # type: ignore[misc]
        compiled = compile_ensemble(graph, own, find_all(graph, caller.signatures))
        assert isinstance(compiled, CompiledEnsemble)
        ensemble = ServedEnsemble(graph, own, compiled, caller.signatures)
        scheduler = EnsembleScheduler(ensemble, caller, Counters(), 4)
        count = len([one async for one in scheduler.submit(request())])
        await scheduler.close()
        return count

    assert asyncio.run(asyncio.wait_for(answers(), 60)) == 200


class SlowCaller(SchedulerCaller):
    """`many` has answered twenty times at once; replies of `slow` are the test's."""

    def __init__(self, begin: Callable[[ModelCall, Reply], None]) -> None:
        """`begin`: called with each call of `slow`."""
        one = signature("slow", {"i": "FP32"}, {"o": "FP32"})
        many = one._replace(model="many", decoupled=True)
        super().__init__({"many": (many, None), "slow": (one, None)})  # type: ignore[dict-item]
        self.begin = begin
        self.running: list[tuple[ModelCall, Reply]] = []

    def call(self, call: ModelCall) -> Reply:
        reply = Reply()
        if call.model == "many":
            for _ in range(20):
                reply.send(InferResponse("", "many", 1, {"o": call.inputs["i"]}, last=False))
            reply.close()
            return reply
        self.begin(call, reply)
        self.running.append((call, reply))
        return reply

    def answer(self) -> None:
        call, reply = self.running.pop()
        reply.send(InferResponse("", "slow", 1, {"o": call.inputs["i"]}, last=True))


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams are held at their bounds, and waits for an instance are over, at once."""
    for name, value in (("PATIENCE_NS", 0), ("STUCK_NS", 1), ("MOST_HELD", MOST_BEHIND)):
        monkeypatch.setattr(stream_hold, name, value)
    monkeypatch.setattr(progress, "PATIENCE_NS", 0)


def held_by_slow(begin: Callable[[ModelCall, Reply], None]) -> tuple[Exception | None, int]:
    """Many turns of the loop pass before each call of `slow` is answered: the request's error, and
    how many answers it got."""

    async def ended() -> tuple[Exception | None, int]:
        own, caller = signature("m", {"X": "FP32"}, {"Y": "FP32"}), SlowCaller(begin)
        steps = ("many", {"i": "X"}, {"o": "t"}), ("slow", {"i": "t"}, {"o": "Y"})
        graph = graph_of(own, *steps, max_inflight=1)
        compiled = compile_ensemble(graph, own, find_all(graph, caller.signatures))
        assert isinstance(compiled, CompiledEnsemble)
        ensemble = ServedEnsemble(graph, own, compiled, caller.signatures)
        scheduler, count = EnsembleScheduler(ensemble, caller, Counters(), 4), 0
        ticket = scheduler.submit(request())
        while not ticket.ended:
            for _ in range(100):
                await asyncio.sleep(0)
            if caller.running and not ticket.ended:
                caller.answer()
                await anext(ticket)
                count += 1
        await scheduler.close()
        return ticket.error, count

    return asyncio.run(asyncio.wait_for(ended(), 60))


def start(_: ModelCall, reply: Reply) -> None:
    reply.started_ns = 1


@pytest.mark.usefixtures("impatient")
def test_a_call_that_executes_for_long_does_not_fail_the_stream_before_it() -> None:
    assert held_by_slow(start) == (None, 20)


@pytest.mark.usefixtures("impatient")
def test_a_stream_fails_when_the_calls_behind_it_wait_for_an_instance() -> None:
    error, count = held_by_slow(lambda *_: None)
    assert (type(error), count) == (EnsembleFailed, 0)
    assert "16 calls of the steps behind it wait for their turn" in str(error)
    assert "have waited for an instance" in str(error)


@pytest.mark.usefixtures("impatient")
def test_a_script_whose_call_waits_for_an_instance_does_not_execute() -> None:
    def start_and_call(call: ModelCall, reply: Reply) -> None:
        start(call, reply)
        call.context.root.script_calls[Reply()] = None

    error, count = held_by_slow(start_and_call)
    assert (type(error), count) == (EnsembleFailed, 0)


class HeldCaller(SchedulerCaller):
    """Keeps the replies of the calls, for the test to end."""

    def __init__(self) -> None:
        one = signature("inner", {"i": "FP32 2"}, {"o": "FP32 2"})
        super().__init__({name: (one._replace(model=name), None) for name in ("a", "b")})  # type: ignore[dict-item]
        self.replies: list[Reply] = []

    def call(self, call: ModelCall) -> Reply:
        self.replies.append(Reply())
        return self.replies[-1]


def counted(end: Callable[[HeldCaller, Ticket], None]) -> Sequence[StepCounters]:
    """The counters of two steps beside each other, whose calls `end` ends; the request's own error
    is not looked at."""

    async def ended() -> Sequence[StepCounters]:
        own, caller = signature("m", {"X": "FP32 2"}, {"Y": "FP32 2", "Z": "FP32 2"}), HeldCaller()
        graph = graph_of(own, ("a", {"i": "X"}, {"o": "Y"}), ("b", {"i": "X"}, {"o": "Z"}))
        compiled = compile_ensemble(graph, own, find_all(graph, caller.signatures))
        assert isinstance(compiled, CompiledEnsemble)
        counters = Counters()
        ensemble = ServedEnsemble(graph, own, compiled, caller.signatures)
        scheduler = EnsembleScheduler(ensemble, caller, counters, 4)
        ticket = scheduler.submit(request(rows=3))
        end(caller, ticket)
        await asyncio.sleep(0)
        assert scheduler.inflight() == 0
        await scheduler.close()
        return counters.steps

    return asyncio.run(ended())


def answer(reply: Reply) -> None:
    reply.started_ns = time.monotonic_ns()
    outputs = {"o": np.zeros((3, 2), np.float32)}
    reply.send(InferResponse("", "a", 1, outputs, last=True))


def test_an_ensemble_executes_while_one_of_its_steps_does() -> None:
    def end(caller: HeldCaller, ticket: Ticket) -> None:
        assert not ticket.executing
        caller.replies[1].started_ns = 1
        assert ticket.executing
        answer(caller.replies[1])
        assert not ticket.executing
        answer(caller.replies[0])

    counted(end)


def test_each_step_counts_its_calls_rows_and_times() -> None:
    def end(caller: HeldCaller, ticket: Ticket) -> None:
        answer(caller.replies[0])
        answer(caller.replies[1])

    steps = counted(end)
    assert [(one.number, one.model) for one in steps] == [(0, "a"), (1, "b")]
    assert [(one.answered, one.failed, one.cancelled, one.rows) for one in steps] == [
        (1, 0, 0, 3)
    ] * 2
    assert all(0 <= one.queue_ns <= one.total_ns for one in steps)
    assert all(one.samples.take() is not None for one in steps)


def test_a_step_that_fails_and_one_that_still_ran_are_told_apart() -> None:
    def end(caller: HeldCaller, ticket: Ticket) -> None:
        caller.replies[0].fail(EnsembleFailed("no luck"))

    assert [(one.answered, one.failed, one.cancelled) for one in counted(end)] == [
        (0, 1, 0),
        (0, 0, 1),
    ]


def test_a_step_that_hangs_until_the_client_has_gone_is_counted() -> None:
    def end(caller: HeldCaller, ticket: Ticket) -> None:
        answer(caller.replies[0])
        ticket.cancel()

    assert [(one.answered, one.failed, one.cancelled) for one in counted(end)] == [
        (1, 0, 0),
        (0, 0, 1),
    ]
