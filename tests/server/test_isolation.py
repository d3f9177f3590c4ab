"""Workers of isolated models that die, by runtime, moment and kind of death (docs/faults.md).

Meanwhile another model is asked all the time and sees no error; afterwards the model serves again
and no process is left.
"""

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from tritonclient.grpc import InferenceServerClient
from tritonclient.utils import InferenceServerException

from support.faults import rows, under_load
from support.scripts import ROW, write_python, write_rows
from support.server import Server, running

pytestmark = pytest.mark.slow

ISOLATION = 'parameters { key: "isolation" value { string_value: "process" } }'
ONE = f"instance_group {{ kind: KIND_CPU }}\n{ISOLATION}"
DECOUPLED = "model_transaction_policy { decoupled: true }"
ALONE = ROW.replace("max_batch_size: 8", "max_batch_size: 1")
"""One request in an execution."""
RUNTIMES = ("identity", "onnxruntime", "openvino", "python")
STREAMS = ("identity_stream", "python_stream")
DEATHS = {"segfault": signal.SIGSEGV, "abort": signal.SIGABRT, "oom kill": signal.SIGKILL}
SLOW = 1000.0
"""The value that makes each model execute for seconds."""

CODE = """
class TritonPythonModel:
    def execute(self, requests):
        return [self.one(request) for request in requests]

    def one(self, request):
        array = request.inputs()[0].as_numpy()
        do = order(request).get("do", "")
        if do:
            getattr(self, do)()
        if array.max() >= 1000:
            time.sleep(30)
        return answer(array)

    def exit(self):
        os._exit(7)

    def segfault(self):
        import ctypes
        ctypes.string_at(0)

    def flood(self):
        for _ in range(2000):
            print("x" * 4000)

    def flood_for_ever(self):
        while True:
            os.write(1, b"y" * 65536)

    def spawn(self):
        import subprocess
        for _ in range(40):
            subprocess.Popen(["sleep", "600"])
        os._exit(8)

    def loop(self):
        while True:
            pass
"""
STREAM = """
class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            for _ in range(200):
                time.sleep(0.05)
                sender.send(answer(request.inputs()[0].as_numpy()))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""


def write_loop(path: Path) -> None:
    """OUT = IN, after as many products of matrices as IN's greatest number says."""
    size = 256
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["square", "square"], ["product"]),
            helper.make_node("ReduceMax", ["product"], ["most"], keepdims=0),
            helper.make_node("Div", ["product", "most"], ["next"]),
            helper.make_node("Identity", ["go"], ["on"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("turn", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("square", TensorProto.FLOAT, [size, size]),
        ],
        [
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("next", TensorProto.FLOAT, [size, size]),
        ],
    )
    square = helper.make_tensor(
        "square0", TensorProto.FLOAT, [size, size], np.ones(size * size, np.float32)
    )
    scalars = [
        helper.make_tensor("yes", TensorProto.BOOL, [], [True]),
        helper.make_tensor("zero", TensorProto.FLOAT, [], [0.0]),
        helper.make_tensor("many", TensorProto.FLOAT, [], [20.0]),
    ]
    nodes = [
        helper.make_node("ReduceMax", ["IN"], ["greatest"], keepdims=0),
        helper.make_node("Mul", ["greatest", "many"], ["turns0"]),
        helper.make_node("Cast", ["turns0"], ["turns"], to=TensorProto.INT64),
        helper.make_node("Loop", ["turns", "yes", "square0"], ["last"], body=body),
        helper.make_node("ReduceMax", ["last"], ["top"], keepdims=0),
        helper.make_node("Mul", ["top", "zero"], ["nothing"]),
        helper.make_node("Add", ["IN", "nothing"], ["OUT"]),
    ]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", "M"]) for n in ("IN", "OUT")]
    graph = helper.make_graph(nodes, "loop", ends[:1], ends[1:], [square, *scalars])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(made)
    onnx.save(made, path)


def write(root: Path) -> None:
    write_rows(root, "healthy")
    delay = 'parameters { key: "execute_delay_ms" value { string_value: "%d" } }'
    write_rows(root, "identity", f"{ONE}\n{delay % 700}")
    config = root / "identity" / "config.pbtxt"
    config.write_text(config.read_text().replace("max_batch_size: 8", "max_batch_size: 1"))
    responses = 'parameters { key: "responses" value { string_value: "200" } }'
    write_rows(root, "identity_stream", f"{ONE}\n{DECOUPLED}\n{delay % 50}\n{responses}")
    for backend in ("onnxruntime", "openvino"):
        (root / backend / "1").mkdir(parents=True)
        write_loop(root / backend / "1" / "model.onnx")
        (root / backend / "config.pbtxt").write_text(ALONE.format(backend=backend, more=ONE))
    limit = 'parameters { key: "execute_timeout_secs" value { string_value: "2" } }'
    write_python(root, "python", CODE, f"{ONE}\n{limit}", ALONE)
    write_python(root, "python_stream", STREAM, f"{ONE}\n{DECOUPLED}")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("models")
    write(root)
    with running(root, model_control_mode="explicit", load_model="*") as started:
        yield started


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[InferenceServerClient]:
    with InferenceServerClient(server.grpc) as opened:
        yield opened


@pytest.fixture(autouse=True)
def others_go_on(server: Server, client: InferenceServerClient) -> Iterator[None]:
    with under_load(server):
        yield
        server.wait_for(
            lambda: all(client.is_model_ready(one) for one in (*RUNTIMES, *STREAMS)),
            "every model to serve again",
        )


def worker(server: Server, model: str) -> int:
    """The process of its one instance, once there is one."""
    found: list[int] = []

    def there() -> bool:
        found[:] = server.children(f"worker {model}_0")
        return len(found) == 1

    server.wait_for(there, f"the worker of {model}")
    return found[0]


def infer(client: InferenceServerClient, model: str, value: float, do: str = "") -> float:
    found = client.infer(model, rows(value), parameters={"do": do}, timeout=60_000_000)
    array = found.as_numpy("IN" if model.startswith("identity") else "OUT")
    assert array is not None
    return float(array.item())


def error(client: InferenceServerClient, model: str, value: float, do: str = "") -> str:
    with pytest.raises(InferenceServerException) as caught:
        infer(client, model, value, do)
    return str(caught.value.message())


def serves(server: Server, client: InferenceServerClient, model: str) -> None:
    server.wait_for(lambda: client.is_model_ready(model), f"{model} to serve again")
    assert infer(client, model, 1.0) == 1.0


@pytest.mark.parametrize("death", DEATHS)
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_worker_that_dies_idle_is_restarted(
    server: Server, client: InferenceServerClient, runtime: str, death: str
) -> None:
    serves(server, client, runtime)
    pid = worker(server, runtime)
    os.kill(pid, DEATHS[death])
    server.wait_for(lambda: worker(server, runtime) != pid, "another worker to be started")
    serves(server, client, runtime)


@pytest.mark.parametrize("death", DEATHS)
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_worker_that_dies_executing_fails_its_request_and_is_restarted(
    server: Server, client: InferenceServerClient, runtime: str, death: str
) -> None:
    serves(server, client, runtime)
    pid = worker(server, runtime)
    with ThreadPoolExecutor(2) as pool:
        said = pool.submit(error, client, runtime, SLOW)
        behind = pool.submit(infer, client, runtime, 1.0)
        server.wait_for(lambda: pending(server, runtime) == 1, "one to execute, another to wait")
        os.kill(pid, DEATHS[death])
        text = said.result(60)
        assert behind.result(60) == 1.0
    killed, dead = f"was killed by signal {int(DEATHS[death])}", "has died and is being restarted"
    assert any(f"'{runtime}_0_0' {how}" in text for how in (killed, dead)), text
    serves(server, client, runtime)


def pending(server: Server, model: str) -> int:
    """Requests that wait in its queue."""
    text = server.get("/metrics", server.metrics_port)[1].decode()
    found = re.search(
        rf'^nv_inference_pending_request_count{{model="{model}",.* (\d+)$', text, re.M
    )
    return int(found[1]) if found else 0


@pytest.mark.parametrize("death", DEATHS)
@pytest.mark.parametrize("model", STREAMS)
def test_worker_that_dies_streaming_ends_the_stream_with_an_error(
    server: Server, client: InferenceServerClient, model: str, death: str
) -> None:
    pid = worker(server, model)
    heard: SimpleQueue[tuple[Any, Any]] = SimpleQueue()
    with InferenceServerClient(server.grpc) as streaming:
        streaming.start_stream(lambda result, error: heard.put((result, error)))
        streaming.async_stream_infer(model, rows(1.0))
        _, failed = heard.get(timeout=60)
        assert failed is None
        os.kill(pid, DEATHS[death])
        while failed is None:
            _, failed = heard.get(timeout=60)
        streaming.stop_stream(cancel_requests=True)
    assert f"was killed by signal {int(DEATHS[death])}" in str(failed)
    server.wait_for(lambda: client.is_model_ready(model), "it to serve again")


@pytest.mark.parametrize("death", DEATHS)
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_worker_that_dies_loading_is_the_reason_of_the_load(
    server: Server, client: InferenceServerClient, runtime: str, death: str
) -> None:
    client.unload_model(runtime)
    server.wait_for(lambda: not server.children(f"worker {runtime}_0"), "it to be unloaded")
    with ThreadPoolExecutor(1) as pool:
        said = pool.submit(load, server, runtime)
        os.kill(worker(server, runtime), DEATHS[death])
        text = said.result(60)
    assert f"was killed by signal {int(DEATHS[death])}" in text
    assert load(server, runtime) == ""
    serves(server, client, runtime)


def load(server: Server, model: str) -> str:
    """Why it was not loaded; "" where it was."""
    with InferenceServerClient(server.grpc) as client:
        try:
            client.load_model(model)
        except InferenceServerException as failed:
            return str(failed.message())
    return ""


@pytest.mark.parametrize(
    ("do", "text"),
    [
        ("exit", "exited with status 7"),
        ("segfault", "was killed by signal 11"),
        ("flood_for_ever", "without progress"),
        ("loop", "without progress"),
        ("spawn", "exited with status 8"),
    ],
)
def test_model_that_ends_its_own_process_ends_its_own_requests(
    server: Server, client: InferenceServerClient, do: str, text: str
) -> None:
    assert text in error(client, "python", 1.0, do)
    serves(server, client, "python")
    left = subprocess.run(["pgrep", "-f", "^sleep 600$"], capture_output=True, check=False)
    assert not left.stdout, "what the model had started is gone with it"


def test_model_that_floods_its_output_is_answered(
    server: Server, client: InferenceServerClient
) -> None:
    assert infer(client, "python", 1.0, "flood") == 1.0


def test_another_isolation_is_the_reason_of_the_load(tmp_path: Path) -> None:
    write_rows(tmp_path, "wrong", ISOLATION.replace("process", "thread"))
    with running(tmp_path, strict_readiness=False, exit_on_error=False) as server:
        (row,) = server.index()
    assert "parameter isolation is 'thread'; it must be 'process'" in row["reason"]
