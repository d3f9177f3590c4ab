"""Errors and response senders of python models, in Triton's words."""

import logging
from pathlib import Path

import numpy as np
import pytest

from backends.errors import ExecutionFailed, FaultyModel, ModelError
from backends.process.instance import HostedInstance
from backends.python import api as pb_utils
from backends.response_sender import respond
from backends.seam import Batch
from support.hosting import (
    CPU,
    ECHO_CONFIG,
    HEAD,
    Ask,
    batch_of,
    floats,
    hosted,
    model,
    one,
    until,
    write_model,
)

OUTPUT_ONLY = 'output { name: "OUT" data_type: TYPE_FP32 dims: -1 }'


@pytest.mark.parametrize(
    "error",
    [
        pb_utils.TritonError("gone", pb_utils.TritonError.NOT_FOUND),
        pb_utils.TritonError(message="gone", code=pb_utils.TritonError.NOT_FOUND),
        pb_utils.TritonError("gone", code=2),
    ],
)
def test_an_error_takes_its_arguments_by_position_and_by_name(error: pb_utils.TritonError) -> None:
    assert (error.message(), error.code(), str(error)) == ("gone", 2, "gone")
    assert pb_utils.TritonError(message="so").code() == pb_utils.TritonError.INTERNAL


def test_an_error_by_keyword_reaches_the_client_with_its_code(tmp_path: Path) -> None:
    code = model(
        "error = pb_utils.TritonError(message='gone', code=pb_utils.TritonError.NOT_FOUND)\n"
        "return [pb_utils.InferenceResponse(error=error) for _ in requests]"
    )
    with hosted(tmp_path, code) as instance:
        result = one(instance, floats(1))
    assert isinstance(result, ModelError)
    assert (str(result), result.code) == ("gone", "NOT_FOUND")


SENDS = "sender = requests[0].get_response_sender()\n"
FINAL = "pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL"


@pytest.mark.parametrize(
    "body",
    [
        f"sender.send(answer(np.float32([[7]])), flags={FINAL})",
        f"sender.send(answer(np.float32([[7]])))\nsender.send(flags={FINAL})",
        "sender.send(answer(np.float32([[7]])))\ndel sender",
        "import threading\n"
        f"late = lambda: sender.send(answer(np.float32([[7]])), flags={FINAL})\n"
        "threading.Timer(0.05, late).start()",
    ],
)
@pytest.mark.parametrize("returned", ["None", "[None]"])
def test_a_model_that_is_not_decoupled_may_send_its_one_response(
    tmp_path: Path, body: str, returned: str
) -> None:
    with hosted(tmp_path, model(f"{SENDS}{body}\nreturn {returned}")) as instance:
        assert one(instance, floats(1))["OUT"].tolist() == [[7]]
        assert one(instance, floats(2))["OUT"].tolist() == [[7]]


RESPONSE = "answer(np.float32([[7]]))"
MORE = "Unable to send response. Non-decoupled model cannot send more than one response."


@pytest.mark.parametrize(
    ("sends", "told"),
    [
        ([RESPONSE, RESPONSE], MORE),
        (
            [f"None, {FINAL}"],
            "Unable to send response. Non-decoupled model cannot send complete final before "
            "sending a response.",
        ),
        (
            [f"{RESPONSE}, {FINAL}", f"None, {FINAL}"],
            "Unable to send response. Response sender has been closed.",
        ),
        (
            ["None"],
            "Inference Response object must be provided when the response flags is set to zero.",
        ),
    ],
)
def test_a_wrong_send_is_refused_in_tritons_words(
    tmp_path: Path, sends: list[str], told: str, caplog: pytest.LogCaptureFixture
) -> None:
    tries = "".join(f"    sender.send({one})\n" for one in sends)
    refused = (
        "except pb_utils.TritonModelException as error:\n    print('refused:', error, flush=True)\n"
    )
    code = model(f"{SENDS}try:\n{tries}{refused}return None")
    with caplog.at_level(logging.INFO, "modelyard.worker"), hosted(tmp_path, code) as instance:
        result = one(instance, floats(1))
        until(lambda: f"refused: {told}" in caplog.text)
    if len(sends) > 1:
        assert result["OUT"].tolist() == [[7]], "what was sent stays sent"
    else:
        assert isinstance(result, FaultyModel)


def test_a_response_both_sent_and_returned_is_refused(tmp_path: Path) -> None:
    code = model(
        f"{SENDS}sender.send(answer(np.float32([[7]])), {FINAL})\n"
        "return [answer(np.float32([[8]]))]"
    )
    with hosted(tmp_path, code) as instance, pytest.raises(ExecutionFailed, match="more than one"):
        one(instance, floats(1))


def test_a_sender_dropped_without_a_response_fails_only_its_request(tmp_path: Path) -> None:
    code = model(f"{SENDS}del sender\nreturn [None, answer(np.float32([[8]]))]")
    with hosted(tmp_path, code) as instance:
        first, second = instance.execute(batch_of(floats(1), floats(2))).results
    assert isinstance(first, FaultyModel)
    assert second["OUT"].tolist() == [[8]]


def test_the_loop_of_an_async_execute_stays_between_batches(tmp_path: Path) -> None:
    code = model(
        "import asyncio\n"
        "if not hasattr(self, 'lock'):\n"
        "    self.lock = asyncio.Event()\n"
        "    self.task = asyncio.ensure_future(self.lock.wait())\n"
        "else:\n"
        "    self.lock.set()\n"
        "    await self.task\n"
        "return [answer(np.float32([[7]]))]"
    ).replace("def execute", "async def execute")
    with hosted(tmp_path, code) as instance:
        for _ in range(2):
            assert one(instance, floats(1))["OUT"].tolist() == [[7]]


def test_an_error_after_the_last_response_of_an_async_stream_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    code = HEAD + (
        "class TritonPythonModel:\n"
        "    async def execute(self, requests):\n"
        "        for request in requests:\n"
        f"            request.get_response_sender().send(flags={FINAL})\n"
        "        raise KeyError('too late for anybody')\n"
    )
    config = ECHO_CONFIG + "model_transaction_policy { decoupled: true }"
    instance = HostedInstance(write_model(tmp_path, code, config), CPU, "echo_0_0")
    try:
        with caplog.at_level(logging.ERROR, "modelyard.worker"):
            respond(instance, batch_of(floats(1)))
            until(lambda: "KeyError: 'too late for anybody'" in caplog.text)
        assert "model.py" in caplog.text
    finally:
        instance.close()


def test_a_model_without_inputs_answers(tmp_path: Path) -> None:
    code = model("return [answer(np.float32([4.5])) for _ in requests]")
    with hosted(tmp_path, code, OUTPUT_ONLY) as instance:
        outcome = instance.execute(Batch([Ask({})], [1], batched=False))
    assert outcome.results[0]["OUT"].tolist() == [4.5]


def test_a_repository_path_with_dots_in_it_loads(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with hosted(tmp_path / "other" / "..", model("return [answer(np.float32([[1]]))]")) as instance:
        assert one(instance, floats(np.float32(1)))["OUT"].tolist() == [[1]]
