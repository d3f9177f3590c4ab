"""Writes python models to disk and hosts them for real: shared by the tests of the worker host."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
from google.protobuf.text_format import Parse

from backends.process.instance import HostedInstance
from backends.seam import Batch, Device
from repository.model import ModelConfig, ModelVersion

CPU = Device("cpu", 0, 1)
ECHO_CONFIG = """
max_batch_size: 8
input { name: "IN" data_type: TYPE_FP32 dims: -1 }
output { name: "OUT" data_type: TYPE_FP32 dims: -1 }
"""
ECHO = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("OUT", request.inputs()[0].as_numpy())])
            for request in requests
        ]
"""

HEAD = """
import json, os, sys
import numpy as np
import triton_python_backend_utils as pb_utils

def answer(array, name="OUT"):
    return pb_utils.InferenceResponse([pb_utils.Tensor(name, array)])

"""


@dataclass
class Ask:
    """One request of a batch; a `backends.seam.Member`."""

    inputs: dict[str, Any]
    id: str = ""
    requested_outputs: tuple[str, ...] = ()
    parameters: dict[str, Any] = field(default_factory=dict)
    correlation_id: int | str = 0
    timeout_us: int = 0


def batch_of(*asks: Ask, batched: bool = True) -> Batch:
    """The asks as one batch; rows from the first input's leading dimension."""
    rows = [len(next(iter(ask.inputs.values()))) if batched else 1 for ask in asks]
    return Batch(asks, rows, batched)


def floats(*values: float) -> Ask:
    """One row of floats for the echo model."""
    return Ask({"IN": np.array([values], np.float32)})


def write_model(
    root: Path, code: str = ECHO, config: str = ECHO_CONFIG, name: str = "echo", **files: str
) -> ModelVersion:
    """`root/<name>/1/model.py` (and `<key>.py` for every other file), as a version."""
    path = root / name / "1"
    path.mkdir(parents=True)
    (path / "model.py").write_text(dedent(code))
    for stem, text in files.items():
        (path / f"{stem}.py").write_text(dedent(text))
    parsed = Parse(config, ModelConfig(name=name, backend="python"))
    return ModelVersion(name, 1, path.parent, path, parsed, "digest")


def until(true: Callable[[], bool], secs: float = 60.0) -> None:
    """Poll until `true()`; fails after `secs`."""
    deadline = time.monotonic() + secs
    while not true():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def alive(pid: int) -> bool:
    """Whether a process of that id exists and has not been reaped."""
    return os.path.exists(f"/proc/{pid}")


@contextmanager
def hosted(root: Path, code: str, config: str = ECHO_CONFIG, **files: str) -> Iterator[Any]:
    instance = HostedInstance(write_model(root, code, config, **files), CPU, "echo_0_0")
    try:
        yield instance
    finally:
        instance.close()


def model(body: str, head: str = HEAD) -> str:
    """A model whose `execute(self, requests)` has this body."""
    lines = "".join(f"        {line}\n" for line in body.splitlines())
    return f"{head}class TritonPythonModel:\n    def execute(self, requests):\n{lines}"


def one(instance: Any, ask: Ask, batched: bool = True) -> Any:
    return instance.execute(batch_of(ask, batched=batched)).results[0]
