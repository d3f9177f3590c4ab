"""Python models that call other models, through a real server and the stock client."""

import http.client
import json
import os
import re
import shutil
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tritonclient.grpc import InferenceServerClient, InferInput, InferResult
from tritonclient.utils import InferenceServerException

from support.hosting import until
from support.script_models import ENDLESS, FAILS, SCRIPT, SQUARE, TELLER
from support.scripts import CALLER, DOUBLE, write_python, write_rows
from support.server import Server, running

ROOT = Path(__file__).parents[3]
DECOUPLED = "instance_group { kind: KIND_CPU }\nmodel_transaction_policy { decoupled: true }"
TWO = "instance_group { kind: KIND_CPU count: 2 }"
TIMEOUT_US = 60_000_000

BACK = CALLER.replace('given["callee"]', '"there"')
THERE = CALLER.replace('given["callee"]', '"back"')


@pytest.fixture(scope="module")
def sign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that `endless` makes when it has noticed that nobody reads."""
    return tmp_path_factory.mktemp("sign") / "cancelled"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, sign: Path) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("models")
    write_rows(root, "rows")
    for name, code, more in (
        ("double", DOUBLE, ""),
        ("caller", CALLER, ""),
        ("twin", CALLER, TWO),
        ("script", SCRIPT, ""),
        ("teller", TELLER, ""),
        ("fails", FAILS, ""),
        ("square", SQUARE, DECOUPLED),
        ("endless", ENDLESS, DECOUPLED),
        ("back", BACK, ""),
        ("there", THERE, ""),
    ):
        write_python(root, name, code, more or "instance_group { kind: KIND_CPU }")
    (root / "repeat" / "1").mkdir(parents=True)
    for file, place in (("config.pbtxt", root / "repeat"), ("model.py", root / "repeat" / "1")):
        shutil.copy(ROOT / "examples" / "repeat" / file, place)
    environment = {**os.environ, "SCRIPT_TEST_SIGN": str(sign)}
    with running(
        root, environment=environment, worker_sandbox_allow_write=[str(sign.parent)]
    ) as made:
        yield made


@pytest.fixture
def client(server: Server) -> Iterator[InferenceServerClient]:
    with InferenceServerClient(server.grpc) as made:
        yield made


def _rows(*values: float) -> list[InferInput]:
    array = np.array([values], np.float32)
    tensor = InferInput("IN", list(array.shape), "FP32")
    tensor.set_data_from_numpy(array)
    return [tensor]


def _infer(client: InferenceServerClient, model: str, *values: float, **order: Any) -> InferResult:
    return client.infer(model, _rows(*values), parameters=order, timeout=TIMEOUT_US)


def _out(result: InferResult) -> list[float]:
    found = result.as_numpy("OUT")
    assert found is not None
    return [float(one) for one in found.ravel()]


def _error(client: InferenceServerClient, model: str, **order: Any) -> str:
    with pytest.raises(InferenceServerException) as caught:
        _infer(client, model, 3.0, **order)
    return str(caught.value)


def _error_of(client: InferenceServerClient, *values: float, **order: Any) -> str:
    with pytest.raises(InferenceServerException) as caught:
        _infer(client, "script", *values, **order)
    return str(caught.value)


def _descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def test_script_gets_what_the_other_model_answers(client: InferenceServerClient) -> None:
    assert _out(_infer(client, "caller", 1.0, 2.0, callee="double")) == [3.0, 5.0]
    assert _out(_infer(client, "caller", 1.0, 2.0, callee="rows", output="IN")) == [2.0, 3.0]


def test_large_tensors_come_through_shared_memory_and_leave_none(
    client: InferenceServerClient, server: Server
) -> None:
    large = [float(one) for one in range(600_000)]
    _infer(client, "caller", 1.0, callee="double")
    before = _descriptors(server.pid)
    for _ in range(3):
        found = _out(_infer(client, "caller", *large, callee="double"))
        assert found == [2 * one + 1 for one in large]
    until(lambda: _descriptors(server.pid) <= before)


def test_many_calls_are_under_way_at_once(client: InferenceServerClient) -> None:
    assert _out(_infer(client, "script", 1.0, do="gather", calls=40)) == [2.0 * (40 + 780)]


def test_callee_is_told_id_timeout_and_parameters(client: InferenceServerClient) -> None:
    response = _infer(client, "script", 1.0, do="told").get_response()
    told = {name: value.string_param for name, value in response.parameters.items()}
    assert told["id"] == "inner"
    assert response.parameters["timeout"].int64_param == 5_000_000
    assert json.loads(told["parameters"]) == {"do": "tell", "k": 7}


def test_script_reads_what_repeat_int32_gives_back_one_by_one(
    client: InferenceServerClient,
) -> None:
    found = _out(_infer(client, "script", 4.0, 2.0, 0.0, 1.0, do="repeat", short=0))
    assert found == [4, 0, 2, 1, 0, 2, 1, 3]  # each element, and its place
    assert "IN has 2 elements and DELAY 1" in _error_of(client, 4.0, 2.0, do="repeat", short=1)


@pytest.mark.parametrize("do", ["square", "square_in_turn"])
def test_decoupled_callee_gives_as_many_responses_as_it_likes(
    client: InferenceServerClient, do: str
) -> None:
    assert _out(_infer(client, "script", 100.0, do=do))[0] == 100
    assert _out(_infer(client, "script", 0.0, do=do))[0] == 0


def test_answer_that_ends_apart_from_its_last_response_ends_with_an_empty_one(
    client: InferenceServerClient,
) -> None:
    assert _out(_infer(client, "script", 4.0, do="square")) == [4, 1]


@pytest.mark.parametrize(
    ("order", "text"),
    [
        ({"callee": "nobody"}, r"NOT_FOUND.*unknown model: 'nobody'"),
        ({"callee": "fails"}, r"UNIMPLEMENTED.*not today"),
        ({"callee": "rows", "output": "OUT"}, r"INVALID_ARGUMENT.*unexpected inference output"),
        ({"callee": "square"}, r"INVALID_ARGUMENT.*Model square is using the decoupled"),
    ],
    ids=["unknown", "fails", "refused", "answers often"],
)
def test_call_that_fails_is_a_response_with_the_error(
    client: InferenceServerClient, order: dict[str, Any], text: str
) -> None:
    assert re.search(text, _error(client, "caller", **order))


def test_callee_that_dies_fails_the_call_and_nothing_else(
    client: InferenceServerClient, server: Server
) -> None:
    text = _error(client, "script", do="plainly", callee="fails", more='{"how": "die"}')
    assert "the worker process of instance 'fails_0_0' exited with status 3" in text
    assert _out(_infer(client, "caller", 1.0, callee="double")) == [3.0]
    server.wait_for(lambda: client.is_model_ready("fails"), "the callee to be back")


def test_model_that_waits_for_itself_is_told_so_at_once(client: InferenceServerClient) -> None:
    text = _error(client, "caller", callee="caller")
    assert "'caller' version 1 → 'caller' version 1" in text
    assert "more instances" in text


def test_models_that_wait_for_each_other_are_told_so_at_once(client: InferenceServerClient) -> None:
    text = _error(client, "back")
    assert "'there' version 1 → 'back' version 1 → 'there' version 1" in text


def test_crossing_calls_all_end(client: InferenceServerClient) -> None:
    def one(model: str) -> str:
        try:
            _infer(client, model, 1.0)
        except InferenceServerException as error:
            return str(error)
        return ""

    with ThreadPoolExecutor(8) as pool:
        texts = list(pool.map(one, ["back", "there"] * 12))
    assert all("every instance waits" in text for text in texts)


def test_second_instance_lets_a_model_call_itself(client: InferenceServerClient) -> None:
    assert "KeyError: 'callee'" in _error(client, "twin", callee="twin")  # of the inner one


def test_calls_count_in_the_callees_statistics(client: InferenceServerClient) -> None:
    def count() -> int:
        found = client.get_inference_statistics("double").model_stats[0]
        return int(found.inference_stats.success.count)

    before = count()
    _infer(client, "caller", 1.0, callee="double")
    assert count() == before + 1


def test_cancelled_iterator_tells_the_callee(client: InferenceServerClient, sign: Path) -> None:
    sign.unlink(missing_ok=True)
    _infer(client, "script", 1.0, do="first")
    until(sign.exists)


def test_client_that_leaves_cancels_the_calls_of_its_request(
    client: InferenceServerClient, sign: Path
) -> None:
    began = Path(f"{sign}.began")
    for one in (sign, began):
        one.unlink(missing_ok=True)
    ended = threading.Event()
    call = client.async_infer(
        "script", _rows(1.0), lambda result, error: ended.set(), parameters={"do": "wait"}
    )
    until(began.exists)
    call.cancel()
    assert ended.wait(30)
    until(sign.exists)


def test_deadline_of_the_request_holds_for_its_calls(server: Server, sign: Path) -> None:
    sign.unlink(missing_ok=True)
    body = {
        "inputs": [{"name": "IN", "shape": [1, 1], "datatype": "FP32", "data": [1.0]}],
        "parameters": {"do": "wait"},
    }
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=60)
    with closing(connection):
        head = {"x-envoy-expected-rq-timeout-ms": "400"}
        connection.request("POST", "/v2/models/script/infer", json.dumps(body), head)
        assert b"timeout expired" in connection.getresponse().read()
    until(sign.exists)


def test_worker_that_is_killed_while_it_calls_ends_its_request_and_its_calls(
    client: InferenceServerClient, server: Server, sign: Path
) -> None:
    began = Path(f"{sign}.began")
    for one in (sign, began):
        one.unlink(missing_ok=True)
    _infer(client, "script", 4.0, do="square")
    before = _descriptors(server.pid)
    with ThreadPoolExecutor(1) as pool:
        text = pool.submit(_error, client, "script", do="wait")
        until(began.exists)
        os.kill(server.children("worker script")[0], signal.SIGKILL)
        assert "was killed by signal 9" in text.result(60)
    until(sign.exists)
    server.wait_for(lambda: client.is_model_ready("script"), "the script to be back")
    assert _out(_infer(client, "script", 4.0, do="square")) == [4, 1]
    until(lambda: _descriptors(server.pid) <= before)
