"""Python models that try things in their worker and answer with what came of it, for tests.

`write_prober(repository, name, **probes)` writes a model that runs the Python of each probe when it
loads, and `answers(server, name)` has per probe "ok: …" or "refused: …".
"""

import http.client
import json
from pathlib import Path
from textwrap import dedent, indent

from support.server import Server

PATIENCE_SECS = 300.0
"""torch.compile took 100 s on a busy machine."""

CONFIG = """
name: "{name}"
backend: "python"
input {{ name: "IN" data_type: TYPE_STRING dims: 1 }}
output {{ name: "OUT" data_type: TYPE_STRING dims: 1 }}
{extra}
"""
_MODEL = """
import json
import numpy as np
import triton_python_backend_utils as pb_utils

{functions}

class TritonPythonModel:
    def initialize(self, args):
        self.args = args

    def execute(self, requests):
        responses = []
        for request in requests:
            name = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()[0].decode()
            try:
                said = f"ok: {{globals()[name]()}}"
            except BaseException as error:
                said = f"refused: {{type(error).__name__}}: {{error}}"
            out = pb_utils.Tensor("OUT", np.array([said.encode()], object))
            responses.append(pb_utils.InferenceResponse([out]))
        return responses
"""


def prober(**probes: str) -> str:
    """A model.py; each probe is the body of a function, which returns what is to be answered."""
    functions = [
        f"def {name}():\n{indent(dedent(body).strip(), '    ')}\n" for name, body in probes.items()
    ]
    return _MODEL.format(functions="\n".join(functions))


def write_prober(repository: Path, name: str, extra: str = "", **probes: str) -> Path:
    """The model's folder, with one version; `extra` goes into its config."""
    folder = repository / name
    (folder / "1").mkdir(parents=True)
    (folder / "config.pbtxt").write_text(CONFIG.format(name=name, extra=extra))
    (folder / "1" / "model.py").write_text(prober(**probes))
    return folder


def answer(server: Server, model: str, probe: str) -> str:
    """What became of one probe: "ok: …" or "refused: …"."""
    inputs = [{"name": "IN", "datatype": "BYTES", "shape": [1], "data": [probe]}]
    connection = http.client.HTTPConnection(server.http, timeout=PATIENCE_SECS)
    try:
        connection.request(
            "POST", f"/v2/models/{model}/infer", json.dumps({"inputs": inputs}).encode()
        )
        response = connection.getresponse()
        body = response.read()
    finally:
        connection.close()
    assert response.status == 200, body
    return str(json.loads(body)["outputs"][0]["data"][0])
