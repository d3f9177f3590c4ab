"""Models that hang, over the wire: what their clients see, and that nothing waits for them."""

import http.client
import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.server import Server, identity_config, running, write_identity

BODY = '{"inputs":[{"name":"IN","datatype":"FP32","shape":[1,1],"data":[%s]}]}'
WAITING = b'nv_inference_pending_request_count{model="m",version="1"} 1\n'
CONFIG = """
name: "m"
backend: "python"
max_batch_size: 1
input { name: "IN" data_type: TYPE_FP32 dims: 1 }
output { name: "OUT" data_type: TYPE_FP32 dims: 1 }
"""
# IN is how long it hangs, in seconds; a negative number says it ignores SIGTERM meanwhile.
HANGS = """
import signal, time
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        secs = float(requests[0].inputs()[0].as_numpy()[0, 0])
        if secs < 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(abs(secs))
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", r.inputs()[0].as_numpy())])
                for r in requests]
"""
TIMEOUT = 'parameters { key: "execute_timeout_secs" value { string_value: "0.5" } }'


def write_python(root: Path, code: str, config: str = CONFIG) -> None:
    folder = root / "m" / "1"
    folder.mkdir(parents=True)
    (folder / "model.py").write_text(code)
    (folder.parent / "config.pbtxt").write_text(config)


def infer(server: Server, value: float) -> tuple[int, str]:
    status, body = server.call("POST", "/v2/models/m/infer", (BODY % value).encode())
    return status, body.decode()


@contextmanager
def executing(server: Server) -> Iterator[http.client.HTTPConnection]:
    """A request that hangs inside the model's only instance: another one waits behind it."""
    connections = [http.client.HTTPConnection(server.http, timeout=60) for _ in range(2)]
    for connection, secs in zip(connections, (1000, 0), strict=True):
        connection.request("POST", "/v2/models/m/infer", BODY % secs)
    server.wait_for(lambda: WAITING in server.get("/metrics", server.metrics_port)[1], "both")
    yield connections[0]
    for connection in connections:
        connection.close()


def ready(server: Server) -> bool:
    return server.get("/v2/models/m/ready")[0] == 200


@pytest.mark.slow
@pytest.mark.parametrize("secs", [1000, -1000])
def test_a_hung_execution_ends_with_the_reason_and_the_model_serves_again(
    tmp_path: Path, secs: float
) -> None:
    write_python(tmp_path, HANGS, CONFIG + TIMEOUT)
    with running(tmp_path) as server:
        status, text = infer(server, secs)
        assert status == 500
        assert "model 'm' version 1" in text
        assert "more than 0.5 s without progress" in text
        assert "parameter execute_timeout_secs=0.5" in text
        server.wait_for(lambda: ready(server), "the worker to be restarted")
        assert infer(server, 0)[0] == 200
        if secs > 0:
            assert "model.py" in server.log(), "the log says where it hung"


@pytest.mark.slow
def test_a_worker_stopped_while_it_executes_is_replaced(tmp_path: Path) -> None:
    write_python(tmp_path, HANGS)
    with running(tmp_path) as server, executing(server) as connection:
        (pid,) = _children(server.pid, "m_0")
        os.kill(pid, signal.SIGSTOP)
        response = connection.getresponse()
        assert response.status == 500
        assert b"stopped by a signal" in response.read()
        server.wait_for(lambda: ready(server), "the worker to be restarted")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["worker", "thread"])
def test_sigterm_ends_within_the_exit_timeout_beside_a_hung_model(
    tmp_path: Path, kind: str
) -> None:
    if kind == "worker":
        write_python(tmp_path, HANGS)
    else:
        _write_hung_thread(tmp_path)
    with running(tmp_path, exit_timeout_secs=12) as server, executing(server) as connection:
        began = time.monotonic()
        server.stop()
        assert time.monotonic() - began < 12 + 5, server.log()
        response = connection.getresponse()
        assert response.status == 503
        assert b"the server unloaded this model before" in response.read()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["worker", "thread"])
def test_an_unload_of_a_hung_model_ends(tmp_path: Path, kind: str) -> None:
    if kind == "worker":
        write_python(tmp_path, HANGS)
    else:
        _write_hung_thread(tmp_path)
    flags = {"model_control_mode": "explicit", "load_model": "m", "exit_timeout_secs": 3}
    with running(tmp_path, **flags) as server, executing(server) as connection:
        assert server.post("/v2/repository/models/m/unload")[0] == 200
        server.wait_for(lambda: "m 1: UNLOADED" in server.log(), "the unload", 40.0)
        assert connection.getresponse().status >= 500


def _write_hung_thread(root: Path) -> None:
    config = identity_config("m", 1_000_000, "instance_group { count: 1 }")
    config = config.replace("INPUT0", "IN").replace("max_batch_size: 8", "max_batch_size: 1")
    write_identity(root, "m", 1, config=config)


def _children(pid: int, name: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        ours = entry.name.isdigit() and _parent(entry) == pid
        if ours and name in (entry / "cmdline").read_text():
            found.append(int(entry.name))
    return found


def _parent(entry: Path) -> int:
    try:
        return int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def test_a_wrong_limit_in_the_config_is_named(tmp_path: Path) -> None:
    write_python(tmp_path, HANGS, CONFIG + TIMEOUT.replace("0.5", "soon"))
    with running(tmp_path, strict_readiness=False) as server:
        (row,) = json.loads(server.post("/v2/repository/index")[1])
        assert "parameter execute_timeout_secs is 'soon'" in row["reason"]
