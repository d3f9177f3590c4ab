"""Models that fail on demand, who calls them, and what else must go on meanwhile, for tests.

`first`, `second` and `third` each add one; a request's parameters `at` and `do` say which of them
does what. `chain` is an ensemble of the three, `script` a python model that calls them in turn, and
`outer` one that calls `chain`. `mapped` calls `first` for each row of a list, `guarded` calls
`first` or `third` by a condition. `summing` has two slots for sequences and runs one at a time.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import tritonclient.grpc as grpc_client

from support.scripts import ROW, write_python, write_rows
from support.server import Server

STEPS = ("first", "second", "third")
CALLERS = ("chain", "script", "outer")
BRANCHING = ("mapped", "guarded")
HANG_SECS = 1.5
"""How long `second` may execute without progress."""

ACTOR = """
class TritonPythonModel:
    def initialize(self, args):
        self.name = args["model_name"]
        self.signs = os.environ["FAULT_SIGNS"]
        open(f"{self.signs}/{self.name}.loads", "w").close()
        while os.path.exists(f"{self.signs}/{self.name}.loads-slowly"):
            time.sleep(0.01)
        if os.path.exists(f"{self.signs}/{self.name}.fails-to-load"):
            raise RuntimeError("it has no weights")

    def execute(self, requests):
        return [self.one(request) for request in requests]

    def one(self, request):
        given = order(request)
        if given.get("at") == self.name:
            error = getattr(self, given["do"])()
            if error is not None:
                return pb_utils.InferenceResponse(error=error)
        return answer(request.inputs()[0].as_numpy() + 1)

    def fail(self):
        return pb_utils.TritonError("no luck", pb_utils.TritonError.INVALID_ARG)

    def throw(self):
        raise ValueError("a bug of the model")

    def die(self):
        os._exit(3)

    def hang(self):
        self.wait()

    def wait(self):
        open(f"{self.signs}/{self.name}.waits", "w").close()
        while not os.path.exists(f"{self.signs}/{self.name}.go"):
            time.sleep(0.005)
"""

SCRIPT = """
class TritonPythonModel:
    def execute(self, requests):
        return [self.one(request) for request in requests]

    def one(self, request):
        given, array = order(request), request.inputs()[0].as_numpy()
        for name in CALLEES:
            response = asked(name, array, parameters=given).exec()
            if response.has_error():
                return failure(response)
            array = response.output_tensors()[0].as_numpy()
        return answer(array)
"""

SUMMING = """
class TritonPythonModel:
    def initialize(self, args):
        self.signs, self.sums = os.environ["FAULT_SIGNS"], {}

    def execute(self, requests):
        return [self.one(request) for request in requests]

    def one(self, request):
        key, value = request.correlation_id(), request.inputs()[0].as_numpy()
        do = order(request).get("do")
        if do == "wait":
            open(f"{self.signs}/summing.waits", "w").close()
            while not os.path.exists(f"{self.signs}/summing.go"):
                time.sleep(0.005)
        if do == "fail":
            return pb_utils.InferenceResponse(error=pb_utils.TritonError("no luck"))
        if request.flags() & pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START:
            self.sums[key] = 0
        self.sums[key] = self.sums[key] + value
        return answer(self.sums[key])
"""
"""Sums up the rows of each sequence."""

CHAIN = """
platform: "ensemble"
max_batch_size: 8
input { name: "IN" data_type: TYPE_FP32 dims: -1 }
output { name: "OUT" data_type: TYPE_FP32 dims: -1 }
ensemble_scheduling {
  step { model_name: "first" model_version: -1
         input_map { key: "IN" value: "IN" } output_map { key: "OUT" value: "one" } }
  step { model_name: "second" model_version: -1
         input_map { key: "IN" value: "one" } output_map { key: "OUT" value: "two" } }
  step { model_name: "third" model_version: -1
         input_map { key: "IN" value: "two" } output_map { key: "OUT" value: "OUT" } }
}
"""

MAPPED = """
platform: "ensemble"
input { name: "IN" data_type: TYPE_FP32 dims: [ -1, -1 ] }
output { name: "OUT" data_type: TYPE_FP32 dims: [ -1, -1 ] }
ensemble_scheduling {
  step { model_name: "first" model_version: -1
         input_map { key: "IN" value: "IN" } output_map { key: "OUT" value: "OUT" } }
}
parameters { key: "map.first" value { string_value: "IN" } }
"""
GUARDED = """
platform: "ensemble"
max_batch_size: 8
input { name: "IN" data_type: TYPE_FP32 dims: 1 }
output { name: "OUT" data_type: TYPE_FP32 dims: -1 }
ensemble_scheduling {
  step { model_name: "first" model_version: -1
         input_map { key: "IN" value: "IN" } output_map { key: "OUT" value: "OUT" } }
  step { model_name: "third" model_version: -1
         input_map { key: "IN" value: "IN" } output_map { key: "OUT" value: "OUT" } }
}
parameters { key: "condition.first" value { string_value: "IN >= 0" } }
parameters { key: "condition.third" value { string_value: "IN < 0" } }
"""
"""`first` for what is not below 0, `third` for the rest."""


def write_faulty(root: Path) -> None:
    """The models of the head of this file, and `healthy`, which echoes IN."""
    one = "instance_group { kind: KIND_CPU }"
    limit = f'parameters {{ key: "execute_timeout_secs" value {{ string_value: "{HANG_SECS}" }} }}'
    for name in STEPS:
        write_python(root, name, ACTOR, f"{one}\n{limit}" if name == "second" else one)
    write_python(root, "script", SCRIPT.replace("CALLEES", repr(STEPS)), one)
    write_python(root, "outer", SCRIPT.replace("CALLEES", "('chain',)"), one)
    for name, config in (("chain", CHAIN), ("mapped", MAPPED), ("guarded", GUARDED)):
        (root / name / "1").mkdir(parents=True)
        (root / name / "config.pbtxt").write_text(config)
    slots = "sequence_batching { oldest { max_candidate_sequences: 2 } %s }"
    idle = "max_sequence_idle_microseconds: 600000000"
    alone = ROW.replace("max_batch_size: 8", "max_batch_size: 1")
    write_python(root, "summing", SUMMING, f"{one}\n{limit}\n{slots % idle}", alone)
    write_rows(root, "healthy")


class Signs:
    """A folder of files by which tests and models wait for each other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def set(self, name: str) -> None:
        (self.folder / name).touch()

    def has(self, name: str) -> bool:
        return (self.folder / name).exists()

    def unset(self, name: str) -> None:
        (self.folder / name).unlink(missing_ok=True)

    def clear(self) -> None:
        for one in self.folder.iterdir():
            one.unlink()


def rows(*values: float) -> list[Any]:
    """IN, for a gRPC client."""
    given = grpc_client.InferInput("IN", [1, len(values)], "FP32")
    given.set_data_from_numpy(np.asarray([values], np.float32))
    return [given]


@contextmanager
def under_load(server: Server, model: str = "healthy") -> Iterator[list[str]]:
    """Ask a model all the while; yields its errors so far. There must be none, and answers."""
    errors: list[str] = []
    over, answers = threading.Event(), 0

    def ask() -> None:
        nonlocal answers
        number = 0.0
        with grpc_client.InferenceServerClient(server.grpc) as client:
            while not over.wait(0.003):
                number += 1
                try:
                    found = client.infer(model, rows(number)).as_numpy("IN")
                    assert found is not None
                    if found.tolist() != [[number]]:
                        errors.append(f"{found} instead of {number}")
                except Exception as error:  # noqa: BLE001 - whatever it is, the test says it
                    errors.append(repr(error))
                answers += 1

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        yield errors
    finally:
        over.set()
        asking.join(60)
    assert not errors, errors[:3]
    assert answers


class Holdings:
    """What a server holds that a request could leave behind."""

    def __init__(self, server: Server, scratch: Path) -> None:
        self._server, self._scratch = server, scratch

    def now(self) -> dict[str, Any]:
        """Workers, scratch files and requests that wait; all must come back."""
        return {
            "workers": len(self._server.children("worker ")),
            "scratch files": sorted(str(one) for one in self._scratch.rglob("*")),
            "pending": self._pending(),
        }

    def regions(self) -> int:
        """Shared memory that the server has open, which has no name; a worker keeps a few."""
        count = 0
        for one in Path(f"/proc/{self._server.pid}/fd").iterdir():
            with suppress(OSError):
                count += "memfd:" in str(one.readlink())
        return count

    def _pending(self) -> dict[str, int]:
        text = self._server.get("/metrics", self._server.metrics_port)[1].decode()
        name = "nv_inference_pending_request_count{"
        lines = [line for line in text.splitlines() if line.startswith(name)]
        return {one.split('"')[1]: int(one.split()[-1]) for one in lines if one.split()[-1] != "0"}
