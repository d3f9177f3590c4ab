"""Decoupled models: any number of responses per request, from any thread, at any time."""

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backends.errors import ExecutionFailed, FaultyModel, InstanceDied, ModelError
from backends.identity import IdentityBackend
from backends.process.instance import HostedInstance
from backends.response_sender import WINDOW, BoundedResponseSender, respond
from backends.seam import Batch, ResponsePart
from support.hosting import CPU, ECHO, ECHO_CONFIG, Ask, batch_of, floats, until, write_model
from support.runtime import make_version, with_config

DECOUPLED = ECHO_CONFIG + "model_transaction_policy { decoupled: true }\n"

TALKATIVE = """
import json, threading
import numpy as np
import triton_python_backend_utils as pb_utils

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL

class TritonPythonModel:
    def initialize(self, args):
        assert pb_utils.using_decoupled_model_transaction_policy(json.loads(args["model_config"]))
        self.later = []

    def execute(self, requests):
        for request in requests:
            order = json.loads(request.parameters()).get("order", "count")
            getattr(self, order)(request)

    def answer(self, request, value, **more):
        rows = len(request.inputs()[0].as_numpy())
        return pb_utils.InferenceResponse(
            [pb_utils.Tensor("OUT", np.full((rows, 1), value, np.float32))], **more
        )

    def count(self, request):
        sender = request.get_response_sender()
        for value in range(int(request.inputs()[0].as_numpy()[0, 0])):
            sender.send(self.answer(request, value))
        sender.send(flags=FINAL)

    def at_once(self, request):
        request.get_response_sender().send(self.answer(request, 7, parameters={"k": 1}), FINAL)

    def thread(self, request):
        threading.Thread(target=self.count, args=(request,)).start()

    def large(self, request):
        big = np.arange(1_000_000, dtype=np.float32).reshape(1, -1)
        sender = request.get_response_sender()
        for _ in range(3):
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", big)]))
        big[:] = -1
        sender.send(flags=FINAL)

    def fail(self, request):
        sender = request.get_response_sender()
        sender.send(self.answer(request, 0))
        error = pb_utils.TritonError("not this one", pb_utils.TritonError.NOT_FOUND)
        sender.send(pb_utils.InferenceResponse(error=error), FINAL)

    def raises(self, request):
        request.get_response_sender().send(self.answer(request, 0))
        raise KeyError("no such thing")

    def forget(self, request):
        request.get_response_sender().send(self.answer(request, 0))

    def after_end(self, request):
        sender = request.get_response_sender()
        sender.send(flags=FINAL)
        try:
            sender.send(flags=FINAL)
        except pb_utils.TritonModelException as error:
            print(error, flush=True)

    def until_cancelled(self, request):
        def wait():
            sender = request.get_response_sender()
            sender.send(self.answer(request, 0))
            while not sender.is_cancelled():
                threading.Event().wait(0.002)
            assert request.is_cancelled()
            sender.send(flags=FINAL)
        threading.Thread(target=wait).start()
"""


@pytest.fixture
def talkative(tmp_path: Path) -> Iterator[HostedInstance]:
    instance = HostedInstance(write_model(tmp_path, TALKATIVE, DECOUPLED), CPU, "echo_0_0")
    yield instance
    instance.close()


def ask(order: str, value: float = 3.0) -> Ask:
    asked = floats(value)
    asked.parameters["order"] = order
    return asked


def values(parts: list[ResponsePart]) -> list[float]:
    return [float(part.result["OUT"][0, 0]) for part in parts if isinstance(part.result, dict)]


class Listener:
    """An outlet and what came out of it; takes everything unless told to be slow."""

    def __init__(self, slow: bool = False) -> None:
        self.parts: list[ResponsePart] = []
        self.first = threading.Event()
        self.ended = threading.Event()
        self.slow = slow
        self.outlet = BoundedResponseSender(self._hear)

    def _hear(self, part: ResponsePart) -> None:
        self.parts.append(part)
        if not self.slow:
            self.outlet.taken()
        self.first.set()
        if part.last:
            self.ended.set()


def begin(instance: Any, *asks: Ask, slow: bool = False) -> list[Listener]:
    listeners = [Listener(slow) for _ in asks]
    instance.stream(batch_of(*asks), [listener.outlet for listener in listeners])
    return listeners


def test_each_request_of_a_batch_gets_its_own_number_of_responses(talkative) -> None:
    answers = respond(talkative, batch_of(ask("count", 0), ask("count", 3), ask("at_once")))
    assert [values(parts) for parts in answers] == [[], [0, 1, 2], [7]]
    assert [parts[-1].last for parts in answers] == [True, True, True]
    assert [len(parts) for parts in answers] == [1, 4, 1]


def test_a_response_carries_its_parameters(talkative) -> None:
    [[part]] = respond(talkative, batch_of(ask("at_once")))
    assert part.parameters == {"k": 1}


def test_responses_come_from_other_threads_after_execute_has_returned(talkative) -> None:
    answers = respond(talkative, batch_of(ask("thread", 40), ask("thread", 50)))
    assert [values(parts) for parts in answers] == [list(range(40)), list(range(50))]


def test_another_batch_starts_while_earlier_requests_still_stream(talkative) -> None:
    [waiting] = begin(talkative, ask("until_cancelled"))
    assert values(respond(talkative, batch_of(ask("count", 2)))[0]) == [0, 1]
    assert not waiting.ended.is_set()
    waiting.outlet.cancel()
    assert waiting.ended.wait(60)


def test_a_large_response_is_what_it_was_when_it_was_sent(talkative) -> None:
    [parts] = respond(talkative, batch_of(ask("large")))
    sums = [float(part.result["OUT"].sum(dtype=np.float64)) for part in parts[:3]]
    assert sums == [499999500000.0] * 3


def test_an_error_comes_after_the_responses_before_it(talkative) -> None:
    [parts] = respond(talkative, batch_of(ask("fail")))
    assert values(parts) == [0]
    error = parts[-1].result
    assert isinstance(error, ModelError)
    assert (str(error), error.code) == ("not this one", "NOT_FOUND")


def test_an_exception_in_execute_fails_the_batch_and_not_the_next(talkative) -> None:
    with pytest.raises(ExecutionFailed, match=r"KeyError: 'no such thing'(?s:.*)model.py\("):
        begin(talkative, ask("raises"))
    assert values(respond(talkative, batch_of(ask("count", 1)))[0]) == [0]


def test_a_sender_dropped_unfinished_fails_its_request(talkative) -> None:
    [parts] = respond(talkative, batch_of(ask("forget")))
    assert isinstance(parts[-1].result, FaultyModel)
    assert "without sending TRITONSERVER_RESPONSE_COMPLETE_FINAL" in str(parts[-1].result)


def test_sending_after_the_end_is_refused_in_the_model(talkative, caplog) -> None:
    respond(talkative, batch_of(ask("after_end")))
    with caplog.at_level("INFO", "modelyard.worker"):
        respond(talkative, batch_of(ask("after_end")))
        until(lambda: "Response sender has been closed" in caplog.text)


def test_a_slow_reader_stops_the_model_and_no_memory_grows(talkative) -> None:
    [listener] = begin(talkative, ask("thread", 500), slow=True)
    until(lambda: len(listener.parts) == WINDOW)
    assert values(respond(talkative, batch_of(ask("count", 20)))[0]) == list(range(20))
    assert len(listener.parts) == WINDOW
    listener.slow = False
    for _ in range(WINDOW):
        listener.outlet.taken()
    assert listener.ended.wait(60)
    assert values(listener.parts) == list(range(500))


def test_a_model_waiting_for_a_reader_that_leaves_goes_on(talkative) -> None:
    [listener] = begin(talkative, ask("thread", 500), slow=True)
    until(lambda: len(listener.parts) == WINDOW)
    listener.outlet.cancel()
    assert listener.ended.wait(60)
    assert len(values(listener.parts)) == WINDOW


def test_the_death_of_the_worker_ends_every_open_stream_at_once(talkative) -> None:
    listeners = begin(talkative, ask("until_cancelled"), ask("until_cancelled"))
    for listener in listeners:
        assert listener.first.wait(60)
    pid = talkative.pid
    os.kill(pid, signal.SIGKILL)
    for listener in listeners:
        assert listener.ended.wait(60)
        assert isinstance(listener.parts[-1].result, InstanceDied)
    until(lambda: talkative.ready and talkative.pid != pid)
    assert values(respond(talkative, batch_of(ask("count", 1)))[0]) == [0]


def test_a_decoupled_model_must_return_none(tmp_path: Path) -> None:
    instance = HostedInstance(write_model(tmp_path, ECHO, DECOUPLED), CPU, "echo_0_0")
    try:
        with pytest.raises(ExecutionFailed, match="the execute function must return None"):
            begin(instance, floats(1.0))
    finally:
        instance.close()


ASYNC = """
import asyncio
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    async def execute(self, requests):
        await asyncio.gather(*(self.answer(request) for request in requests))

    async def answer(self, request):
        sender = request.get_response_sender()
        for _ in range(3):
            await asyncio.sleep(0.001)
            out = pb_utils.Tensor("OUT", request.inputs()[0].as_numpy())
            sender.send(pb_utils.InferenceResponse([out]))
        if request.inputs()[0].as_numpy()[0, 0] < 0:
            raise ValueError("below zero")
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""


def test_an_async_execute_goes_on_by_itself(tmp_path: Path) -> None:
    instance = HostedInstance(write_model(tmp_path, ASYNC, DECOUPLED), CPU, "echo_0_0")
    try:
        good, bad = begin(instance, floats(5.0)), begin(instance, floats(-1.0))
        assert good[0].ended.wait(60)
        assert bad[0].ended.wait(60)
        assert values(good[0].parts) == [5, 5, 5]
        assert "ValueError: below zero" in str(bad[0].parts[-1].result)
    finally:
        instance.close()


ORDINARY = """
import os, threading
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        open(os.environ["DECOUPLED_TEST_SIGN"], "w").close()
        if requests[-1].parameters() != "{}":
            while not requests[-1].is_cancelled():
                threading.Event().wait(0.002)
        return [
            pb_utils.InferenceResponse(
                [pb_utils.Tensor("OUT", request.inputs()[0].as_numpy())],
                parameters={"cancelled": request.is_cancelled()} if index else {},
            )
            for index, request in enumerate(requests)
        ]
"""


def test_an_ordinary_model_sees_who_has_left_and_answers_with_parameters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sign = tmp_path / "executing"
    monkeypatch.setenv("DECOUPLED_TEST_SIGN", str(sign))
    instance = HostedInstance(write_model(tmp_path, ORDINARY, ECHO_CONFIG), CPU, "echo_0_0")
    try:
        batch = batch_of(floats(1.0), ask("wait"))
        outcomes: list[Any] = []
        thread = threading.Thread(target=lambda: outcomes.append(instance.execute(batch)))
        thread.start()
        until(sign.exists)
        instance.cancel(batch, 1)
        thread.join(60)
        assert outcomes[0].parameters == {1: {"cancelled": True}}
        instance.cancel(batch, 1)  # too late: nobody else's flag is raised
        assert instance.execute(batch_of(floats(1.0), floats(2.0))).parameters == {
            1: {"cancelled": False}
        }
    finally:
        instance.close()


def identity(root: Path, responses: int) -> Any:
    version = make_version(
        root,
        'backend: "identity" max_batch_size: 4 model_transaction_policy { decoupled: true } '
        f'parameters {{ key: "responses" value {{ string_value: "{responses}" }} }}',
    )
    config = IdentityBackend().complete(version, 4)
    return IdentityBackend().load(with_config(version, config), CPU, 1).instances[0]


@pytest.mark.parametrize("responses", [0, 1, 3])
def test_identity_answers_as_often_as_it_is_told(tmp_path: Path, responses: int) -> None:
    instance = identity(tmp_path, responses)
    array = np.ones((1, 2), np.float32)
    batch = Batch([Ask({"INPUT0": array}), Ask({"INPUT0": array})], [1, 1], True)
    for parts in respond(instance, batch):
        assert len(parts) == max(1, responses)
        assert [part.result is not None for part in parts].count(True) == responses
        assert [part.last for part in parts].count(True) == 1
