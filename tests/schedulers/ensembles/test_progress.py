"""Ensembles whose steps are answered at once, as the response cache answers, or not at all."""

import asyncio
from itertools import pairwise

import numpy as np
import pytest

from schedulers.calls import ModelCall
from schedulers.counters import Counters
from schedulers.ensembles.policy.compile import CompiledEnsemble, compile_ensemble
from schedulers.ensembles.scheduler import EnsembleScheduler
from schedulers.ensembles.served_ensemble import ServedEnsemble, find_all
from schedulers.ensembles.traffic import EnsembleTraffic
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
        traffic = EnsembleTraffic(steps)
        scheduler = EnsembleScheduler(ensemble, caller, Counters(), 4, traffic)
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
        scheduler = EnsembleScheduler(ensemble, caller, Counters(), 4, EnsembleTraffic(2))
        assert [one async for one in scheduler.submit(request())] == []
        await scheduler.close()
        return caller.calls

    assert asyncio.run(asyncio.wait_for(answers(), 60)) == 100
