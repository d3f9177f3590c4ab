"""A python model that asks for one of its requests to be executed once more."""

from pathlib import Path

import numpy as np
import pytest

from backends.errors import ExecutionFailed, Reschedule
from backends.python import api as pb_utils
from backends.response_sender import respond
from support.hosting import ECHO_CONFIG, batch_of, floats, hosted, model

DECOUPLED = ECHO_CONFIG + "model_transaction_policy { decoupled: true }\n"

AGAIN = """
answers = []
for request in requests:
    array = request.inputs()[0].as_numpy()
    if array[0, 0] > 1:
        request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
        answers.append(None)
    else:
        answers.append(answer(array))
return answers
"""

STREAMED = """
for request in requests:
    sender = request.get_response_sender()
    sender.send(answer(request.inputs()[0].as_numpy()))
    request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
"""


def test_request_that_is_wanted_once_more_has_no_answer_yet(tmp_path: Path) -> None:
    with hosted(tmp_path, model(AGAIN)) as instance:
        done, again = instance.execute(batch_of(floats(1.0), floats(2.0))).results
    np.testing.assert_array_equal(done["OUT"], [[1.0]])
    assert isinstance(again, Reschedule)


def test_none_without_the_flag_is_still_refused(tmp_path: Path) -> None:
    with (
        hosted(tmp_path, model("return [None for _ in requests]")) as instance,
        pytest.raises(ExecutionFailed, match="Expected an 'InferenceResponse' object"),
    ):
        instance.execute(batch_of(floats(1.0)))


def test_execution_of_a_decoupled_model_ends_with_it(tmp_path: Path) -> None:
    with hosted(tmp_path, model(STREAMED), DECOUPLED) as instance:
        ((first, last),) = respond(instance, batch_of(floats(5.0)))
    assert isinstance(first.result, dict)
    assert isinstance(last.result, Reschedule)
    assert last.last


def test_unknown_flag_is_refused() -> None:
    with pytest.raises(pb_utils.TritonModelException, match="Unsupported release flag 3"):
        pb_utils.InferenceRequest().set_release_flags(3)
