"""What the config of a sequence model may ask for, in a real server and by stock clients: several
states, states of growing size, from files and as outputs; torch; iterative; Triton's own examples.
"""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import onnx
import pytest
import torch
import tritonclient.grpc as grpc_client
import tritonclient.http as http_client
from onnx import TensorProto, helper
from tritonclient.utils import InferenceServerException

from support.sequences import infer, input_of, rest, write_running_sum
from support.server import Server, running

pytestmark = pytest.mark.slow
PATIENCE_S = 60
IDLE = "max_sequence_idle_microseconds: 60000000"
ONE = "instance_group { kind: KIND_CPU count: 1 }"

COUNTDOWN = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.left = {}
        self.decoupled = "stream" in args["model_name"]

    def execute(self, requests):
        answers = [self.one(request) for request in requests]
        return None if self.decoupled else answers

    def one(self, request):
        key = request.correlation_id()
        if request.flags() & pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START:
            value = int(request.inputs()[0].as_numpy().ravel()[0])
            self.left[key] = [value, 0]
        state = self.left[key]
        state[0] -= 1
        state[1] += 1
        over = state[0] <= 0
        made = pb_utils.InferenceResponse(
            [pb_utils.Tensor("OUTPUT", np.array([[state[1]]], np.int32))]
        )
        if self.decoupled:
            sender = request.get_response_sender()
            sender.send(made)
        if not over:
            request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
            return None
        del self.left[key]
        if self.decoupled:
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        return made
"""

SQUARE = """
import numpy as np
import threading
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            threading.Thread(target=self.work, args=(request,)).start()

    def work(self, request):
        sender = request.get_response_sender()
        value = request.inputs()[0].as_numpy()
        for _ in range(int(value[0])):
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", value)]))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""


def write_onnx(folder: Path, nodes: Sequence[Any], inputs: Any, outputs: Any, config: str) -> None:
    """`inputs`, `outputs`: name → columns, a number or a text for any; INT32 all."""
    (folder / "1").mkdir(parents=True)

    def tensor(name: str, columns: int | str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.INT32, ["batch", columns])

    graph = helper.make_graph(
        list(nodes),
        folder.name,
        [tensor(*one) for one in inputs.items()],
        [tensor(*one) for one in outputs.items()],
        [helper.make_tensor("one", TensorProto.INT32, [1, 1], [1])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, folder / "1" / "model.onnx")
    (folder / "config.pbtxt").write_text(
        f'name: "{folder.name}" backend: "onnxruntime" max_batch_size: 4 {ONE}\n'
        'input { name: "INPUT" data_type: TYPE_INT32 dims: [ 1 ] }\n' + config
    )


def state(of: str, dims: str = "1", more: str = "") -> str:
    return (
        f'state {{ input_name: "{of}_IN" output_name: "{of}" data_type: TYPE_INT32 '
        f"dims: [ {dims} ] {more} }}"
    )


def write_two_states(root: Path) -> None:
    """SUM begins with 100, from a file, and COUNT with 0; both are outputs too."""
    folder = root / "two_states"
    initial = 'initial_state { name: "initial" data_type: TYPE_INT32 dims: [ 1 ] %s }'
    from_file, zero = initial % 'data_file: "hundred"', initial % "zero_data: true"
    write_onnx(
        folder,
        [
            helper.make_node("Add", ["INPUT", "SUM_IN"], ["SUM"]),
            helper.make_node("Add", ["one", "COUNT_IN"], ["COUNT"]),
            helper.make_node("Mul", ["SUM", "COUNT"], ["OUTPUT"]),
        ],
        {"INPUT": 1, "SUM_IN": 1, "COUNT_IN": 1},
        {"OUTPUT": 1, "SUM": 1, "COUNT": 1},
        'output { name: "OUTPUT" data_type: TYPE_INT32 dims: [ 1 ] }\n'
        'output { name: "COUNT" data_type: TYPE_INT32 dims: [ 1 ] }\n'
        f"sequence_batching {{ {IDLE} {state('SUM', more=from_file)} "
        f"{state('COUNT', more=zero)} }}",
    )
    (folder / "initial_state").mkdir()
    (folder / "initial_state" / "hundred").write_bytes(np.array([100], np.int32).tobytes())


def write_growing(root: Path, name: str, strategy: str) -> None:
    """Each request appends its INPUT to all that came before, which begins as one zero."""
    write_onnx(
        root / name,
        [helper.make_node("Concat", ["ALL_IN", "INPUT"], ["ALL"], axis=1)],
        {"INPUT": 1, "ALL_IN": "before"},
        {"ALL": "after"},
        'output { name: "ALL" data_type: TYPE_INT32 dims: [ -1 ] }\n'
        f"sequence_batching {{ {strategy} {IDLE} {state('ALL', '-1')} }}",
    )


def write_torch_sum(root: Path) -> None:
    class Sum(torch.nn.Module):
        def forward(self, input: torch.Tensor, sum_in: torch.Tensor) -> dict[str, torch.Tensor]:
            made = input + sum_in
            return {"OUTPUT": made, "SUM": made * 1}

    folder = root / "torch_sum" / "1"
    folder.mkdir(parents=True)
    samples = torch.zeros(2, 1, dtype=torch.int32), torch.zeros(2, 1, dtype=torch.int32)
    rows = torch.export.Dim("rows", min=1, max=4)
    shapes = {"input": {0: rows}, "sum_in": {0: rows}}
    program = torch.export.export(Sum(), samples, dynamic_shapes=shapes)
    torch.export.save(program, folder / "model.pt2")
    (folder.parent / "config.pbtxt").write_text(
        f'name: "torch_sum" backend: "pytorch" max_batch_size: 4 {ONE}\n'
        'input { name: "INPUT" data_type: TYPE_INT32 dims: [ 1 ] }\n'
        'output { name: "OUTPUT" data_type: TYPE_INT32 dims: [ 1 ] }\n'
        f"sequence_batching {{ {IDLE} {state('SUM')} }}"
    )


def write_python(root: Path, name: str, code: str, config: str) -> None:
    folder = root / name / "1"
    folder.mkdir(parents=True)
    (folder / "model.py").write_text(code)
    (folder.parent / "config.pbtxt").write_text(f'name: "{name}" backend: "python" {ONE}\n{config}')


def write_countdown(root: Path, name: str, more: str = "") -> None:
    write_python(
        root,
        name,
        COUNTDOWN,
        'max_batch_size: 4 input { name: "INPUT" data_type: TYPE_INT32 dims: [ 1 ] }\n'
        'output { name: "OUTPUT" data_type: TYPE_INT32 dims: [ 1 ] }\n'
        "sequence_batching { iterative_sequence: true oldest { max_candidate_sequences: 8 } "
        f"{IDLE} }} {more}",
    )


DECOUPLED = "model_transaction_policy { decoupled: true }"


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
