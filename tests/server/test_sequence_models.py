"""What the config of a sequence model may ask for, in a real server and by stock clients: several
states, states of growing size, from files and as outputs; torch; iterative; Triton's own examples.
"""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpc_client
import tritonclient.http as http_client
from tritonclient.utils import InferenceServerException

from support.sequence_models import (
    DECOUPLED,
    IDLE,
    ONE,
    SQUARE,
    write_countdown,
    write_growing,
    write_python,
    write_torch_sum,
    write_two_states,
)
from support.sequences import infer, input_of, rest, write_running_sum
from support.server import Server, running

pytestmark = pytest.mark.slow
PATIENCE_S = 60


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("models")
    write_two_states(root)
    write_growing(root, "growing", "direct { }")
    write_growing(root, "growing_oldest", "oldest { max_candidate_sequences: 8 }")
    write_torch_sum(root)
    write_countdown(root, "countdown")
    write_countdown(root, "countdown_stream", DECOUPLED)
    write_python(
        root,
        "square_int32",
        SQUARE,
        'max_batch_size: 0 input { name: "IN" data_type: TYPE_INT32 dims: [ 1 ] }\n'
        f'output {{ name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] }} {DECOUPLED}',
    )
    with running(root) as started:
        yield started


@pytest.fixture(params=["http", "grpc"])
def client(request: pytest.FixtureRequest, server: Server) -> Iterator[Any]:
    opened: Any
    if request.param == "http":
        opened = http_client.InferenceServerClient(server.http)
    else:
        opened = grpc_client.InferenceServerClient(server.grpc)
    with opened:
        yield opened


def ask(client: Any, model: str, value: int, key: int, output: str, **flags: bool) -> list[int]:
    found = client.infer(
        model,
        [input_of(client, value)],
        sequence_id=key,
        sequence_start=flags.get("start", False),
        sequence_end=flags.get("end", False),
    ).as_numpy(output)
    return [int(one) for one in found.ravel()]


def test_two_states_begin_as_their_files_say_and_are_outputs_where_listed(client: Any) -> None:
    assert ask(client, "two_states", 5, 1, "OUTPUT", start=True) == [105]
    assert ask(client, "two_states", 1, 2, "OUTPUT", start=True) == [101]
    assert ask(client, "two_states", 6, 1, "OUTPUT") == [111 * 2]
    assert ask(client, "two_states", 0, 1, "COUNT", end=True) == [3]
    assert ask(client, "two_states", 1, 2, "OUTPUT", end=True) == [102 * 2]
    result = client.infer(
        "two_states", [input_of(client, 0)], sequence_id=3, sequence_start=True, sequence_end=True
    )
    assert result.as_numpy("SUM") is None


@pytest.mark.parametrize("model", ["growing", "growing_oldest"])
def test_states_of_several_lengths_grow_side_by_side(client: Any, model: str) -> None:
    """A slot between them is free, and its row has no state of their length."""
    for key in (1, 2, 3):
        assert ask(client, model, key, key, "ALL", start=True) == [0, key]
    assert ask(client, model, 9, 2, "ALL", end=True) == [0, 2, 9]
    for number in range(4):
        expected = [0, 3, *range(10, 11 + number)]
        assert ask(client, model, 10 + number, 3, "ALL", end=number == 3) == expected
    assert ask(client, model, 7, 1, "ALL", end=True) == [0, 1, 7]


@pytest.mark.parametrize("model", ["growing", "growing_oldest"])
def test_growing_states_of_many_sequences_at_once_are_each_ones_own(
    server: Server, model: str
) -> None:
    def one(key: int) -> list[int]:
        with grpc_client.InferenceServerClient(server.grpc) as client:
            for number in range(key % 5 + 3):
                found = ask(client, model, key, 100 + key, "ALL", start=number == 0)
            return found

    with ThreadPoolExecutor(4) as pool:
        for key, found in enumerate(pool.map(one, range(4))):
            assert found == [0] + [key] * (key % 5 + 3)
    with grpc_client.InferenceServerClient(server.grpc) as client:
        for key in range(4):
            ask(client, model, 0, 100 + key, "ALL", end=True)


def test_state_of_a_torch_model_is_kept_for_each_sequence(client: Any) -> None:
    assert infer(client, "torch_sum", 1, 7, start=True) == 1
    assert infer(client, "torch_sum", 10, 8, start=True) == 10
    assert infer(client, "torch_sum", 2, 7) == 3
    assert infer(client, "torch_sum", 20, 8, end=True) == 30
    assert infer(client, "torch_sum", 3, 7, end=True) == 6


def test_torch_worker_that_dies_loses_its_sequences_and_never_goes_on_from_nothing(
    server: Server,
) -> None:
    assert rest(server, "torch_sum", 5, sequence_id=50, sequence_start=True)[0] == 200
    (worker,) = server.children("worker torch_sum")
    os.kill(worker, 9)
    server.wait_for(
        lambda: (
            server.children("worker torch_sum") not in ([], [worker])
            and server.is_ready("/v2/models/torch_sum/ready")
        ),
        "the worker to be back",
    )
    status, answer = rest(server, "torch_sum", 5, sequence_id=50)
    assert status == 500
    assert "start" in answer["error"]
    status, answer = rest(server, "torch_sum", 5, sequence_id=50, sequence_start=True)
    assert (status, answer["outputs"][0]["data"]) == (200, [5])


def test_iterative_request_needs_no_id_and_runs_until_its_model_answers(client: Any) -> None:
    def one(value: int) -> int:
        return int(client.infer("countdown", [input_of(client, value)]).as_numpy("OUTPUT").item())

    assert [one(value) for value in (1, 5, 40)] == [1, 5, 40]


def test_iterative_requests_join_and_leave_each_others_batches(server: Server) -> None:
    def one(value: int) -> int:
        with grpc_client.InferenceServerClient(server.grpc) as client:
            found = client.infer("countdown", [input_of(client, value)]).as_numpy("OUTPUT")
        assert found is not None
        return int(found.item())

    values = [50, 1, 7, 30, 2, 19, 4, 4, 11, 60]
    with ThreadPoolExecutor(len(values)) as pool:
        assert list(pool.map(one, values)) == values


def test_iterative_decoupled_request_streams_an_answer_of_each_execution(server: Server) -> None:
    heard: SimpleQueue[tuple[Any, Any]] = SimpleQueue()
    values = [5, 1, 20]
    with grpc_client.InferenceServerClient(server.grpc) as client:
        client.start_stream(lambda result, error: heard.put((result, error)))
        for value in values:
            client.async_stream_infer(
                "countdown_stream",
                [input_of(client, value)],
                request_id=str(value),
                enable_empty_final_response=True,
            )
        found: dict[str, list[int]] = {str(value): [] for value in values}
        over = 0
        while over < len(values):
            result, error = heard.get(timeout=PATIENCE_S)
            assert error is None, error
            response = result.get_response()
            if response.outputs:
                found[response.id].append(int(result.as_numpy("OUTPUT").item()))
            over += response.parameters["triton_final_response"].bool_param
        client.stop_stream()
    assert found == {str(value): list(range(1, value + 1)) for value in values}


def test_square_int32_answers_n_times_n(server: Server) -> None:
    heard: SimpleQueue[tuple[Any, Any]] = SimpleQueue()
    with grpc_client.InferenceServerClient(server.grpc) as client:
        client.start_stream(lambda result, error: heard.put((result, error)))
        for value in (4, 0, 1):
            given = grpc_client.InferInput("IN", [1], "INT32")
            given.set_data_from_numpy(np.array([value], np.int32))
            client.async_stream_infer(
                "square_int32", [given], request_id=str(value), enable_empty_final_response=True
            )
        found: dict[str, list[int]] = {"4": [], "0": [], "1": []}
        over = 0
        while over < len(found):
            result, error = heard.get(timeout=PATIENCE_S)
            assert error is None, error
            response = result.get_response()
            if response.outputs:
                found[response.id].append(int(result.as_numpy("OUT").item()))
            over += response.parameters["triton_final_response"].bool_param
        client.stop_stream()
        assert found == {"4": [4] * 4, "0": [], "1": [1]}
        with pytest.raises(InferenceServerException, match="decoupled transaction policy"):
            client.infer("square_int32", [given])


def test_test_hooks_hold_requests_back_until_so_many_wait(tmp_path: Path) -> None:
    """One slot: four requests of its sequence and two sequences behind it, in any order."""
    write_running_sum(tmp_path, "held", f"direct {{ }} {IDLE}", rows=1, extra=ONE)
    hooks = {"TRITONSERVER_DELAY_SCHEDULER": "3", "TRITONSERVER_BACKLOG_DELAY_SCHEDULER": "2"}
    heard: SimpleQueue[tuple[Any, Any]] = SimpleQueue()
    waiting = b'nv_inference_pending_request_count{model="held",version="1"} %d\n'
    with (
        running(tmp_path, environment=hooks) as server,
        grpc_client.InferenceServerClient(server.grpc) as client,
    ):
        client.start_stream(lambda result, error: heard.put((result, error)))

        def send(key: int, *, start: bool = False, end: bool = False) -> None:
            client.async_stream_infer(
                "held",
                [input_of(client, 1)],
                sequence_id=key,
                sequence_start=start,
                sequence_end=end,
            )

        for number in range(3):
            send(1, start=number == 0, end=number == 2)
        send(2, start=True, end=True)
        server.wait_for(
            lambda: waiting % 4 in server.get("/metrics", server.metrics_port)[1], "four to wait"
        )
        assert heard.empty()
        send(3, start=True, end=True)
        found = []
        for _ in range(5):
            result, error = heard.get(timeout=PATIENCE_S)
            assert error is None, error
            found.append(int(result.as_numpy("OUTPUT").item()))
        client.stop_stream()
    assert sorted(found) == [1, 1, 1, 2, 3]
