"""Python models over the wire."""

import http.client
import json
from pathlib import Path
from textwrap import dedent

import pytest
import tritonclient.grpc as grpc_client
from tritonclient.utils import InferenceServerException

from support.server import Server, running

OUT = 'backend: "python" output { name: "OUT" data_type: TYPE_FP32 dims: 1 }'
CLOCK = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        out = pb_utils.Tensor("OUT", np.full((1,), 12.5, np.float32))
        return [pb_utils.InferenceResponse([out]) for _ in requests]
"""
REFUSES = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        error = pb_utils.TritonError(message="no such row", code=pb_utils.TritonError.NOT_FOUND)
        return [pb_utils.InferenceResponse(error=error) for _ in requests]
"""


def write(root: Path, name: str, code: str, config: str = OUT) -> None:
    folder = root / name / "1"
    folder.mkdir(parents=True)
    (folder / "model.py").write_text(dedent(code))
    (folder.parent / "config.pbtxt").write_text(config)


def infer(server: Server, name: str) -> tuple[int, dict[str, object]]:
    status, body = server.post(f"/v2/models/{name}/infer", {"inputs": []})
    return status, json.loads(body)


@pytest.mark.slow
def test_models_without_inputs_answer_from_a_repository_whose_path_has_dots(
    tmp_path: Path,
) -> None:
    (tmp_path / "other").mkdir()
    write(tmp_path / "models", "clock", CLOCK)
    write(tmp_path / "models", "batched", CLOCK, OUT + " max_batch_size: 1")
    write(tmp_path / "models", "refuses", REFUSES)
    (tmp_path / "models" / "batched" / "1" / "model.py").write_text(CLOCK.replace("(1,)", "(1, 1)"))
    with running(tmp_path / "other" / ".." / "models") as server:
        for name in ("clock", "batched"):
            status, answer = infer(server, name)
            assert (status, answer["outputs"][0]["data"]) == (200, [12.5]), answer
        assert infer(server, "refuses") == (404, {"error": "no such row"})
        client = grpc_client.InferenceServerClient(server.grpc)
        assert client.infer("clock", []).as_numpy("OUT").tolist() == [12.5]
        with pytest.raises(InferenceServerException) as raised:
            client.infer("refuses", [])
        assert raised.value.status() == "StatusCode.NOT_FOUND"
        client.close()


FINALIZES = """
import os, time
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.folder = os.path.dirname(args["model_repository"])
        open(f"{self.folder}/../initialized-{os.getpid()}", "w").close()
        open(f"{self.folder}/../named-{args['model_instance_name']}", "x").close()

    def execute(self, requests):
        out = pb_utils.Tensor("OUT", np.full((1,), os.getpid(), np.float32))
        return [pb_utils.InferenceResponse([out]) for _ in requests]

    def finalize(self):
        time.sleep(0.5)
        open(f"{self.folder}/../finalized-{os.getpid()}", "w").close()
"""


@pytest.mark.slow
def test_shrinking_returns_after_finalize_and_growing_keeps_those_there(tmp_path: Path) -> None:
    def happened(what: str) -> set[str]:
        return {path.name.partition("-")[2] for path in tmp_path.glob(f"{what}-*")}

    def resize(server: Server, count: int) -> None:
        config = f"{OUT} instance_group {{ kind: KIND_CPU count: {count} }}"
        (tmp_path / "models" / "m" / "config.pbtxt").write_text(config)
        status, body = server.post("/v2/repository/models/m/load")
        assert status == 200, body

    write(tmp_path / "models", "m", FINALIZES)
    flags = {"model_control_mode": "explicit", "load_model": "m"}
    # its models leave signs beside the repository, which the sandbox would not let them write
    with running(tmp_path / "models", worker_sandbox="off", **flags) as server:
        (first,) = happened("initialized")
        resize(server, 3)
        assert len(happened("initialized")) == 3
        assert happened("named") == {"m_0", "m_0_0", "m_0_1"}
        assert not happened("finalized")
        resize(server, 1)
        assert len(happened("finalized")) == 2
        (kept,) = happened("initialized") - happened("finalized")
        assert kept == first
        status, answer = infer(server, "m")
        assert (status, answer["outputs"][0]["data"]) == (200, [float(first)])
        config = json.loads(server.get("/v2/models/m/config")[1])
        (group,) = config["instance_group"]
        assert config["default_model_filename"] == "model.py"
        shown = [group[key] for key in ("name", "kind", "count", "gpus")]
        assert shown == ["m_0", "KIND_CPU", 1, []]
        client = grpc_client.InferenceServerClient(server.grpc)
        assert client.get_model_config("m").config.instance_group[0].name == "m_0"
        client.close()


SAYS_READY = """
import os, time
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.sign = os.path.join(args["model_repository"], "..", "..", "sign")

    def is_ready(self):
        text = open(self.sign).read()
        if text == "hangs":
            time.sleep(1000)
        return {"yes": True, "no": False}.get(text, "perhaps")

    def execute(self, requests):
        time.sleep(1000)
"""


@pytest.mark.slow
def test_a_models_own_is_ready_is_its_readiness_also_while_it_executes(tmp_path: Path) -> None:
    write(tmp_path / "models", "m", SAYS_READY)
    sign = tmp_path / "sign"

    def ready(server: Server) -> bool:
        return server.get("/v2/models/m/ready")[0] == 200

    # it reads a sign beside the repository, which the sandbox would not let it
    with running(tmp_path / "models", exit_timeout_secs=1, worker_sandbox="off") as server:
        connection = http.client.HTTPConnection(server.http, timeout=60)
        connection.request("POST", "/v2/models/m/infer", '{"inputs":[]}')
        for text in ("yes", "no", "neither", "yes"):
            sign.write_text(text)
            assert ready(server) == (text == "yes")
        client = grpc_client.InferenceServerClient(server.grpc)
        assert client.is_model_ready("m")
        sign.unlink()
        assert not client.is_model_ready("m"), "it raises"
        sign.write_text("hangs")
        assert not ready(server)
        assert server.is_ready("/v2/health/live")
        client.close()
        connection.close()
