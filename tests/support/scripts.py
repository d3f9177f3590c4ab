"""Models that call other models, written to a folder for a real server."""

from pathlib import Path
from textwrap import dedent

ROW = """
backend: "{backend}"
max_batch_size: 8
input {{ name: "IN" data_type: TYPE_FP32 dims: -1 }}
output {{ name: "OUT" data_type: TYPE_FP32 dims: -1 }}
{more}
"""
"""Rows of floats in, rows of floats out."""

HEAD = """
import asyncio, json, os, threading, time
import numpy as np
import triton_python_backend_utils as pb_utils

def asked(name, array, output="OUT", **more):
    inputs = [pb_utils.Tensor("IN", array)]
    return pb_utils.InferenceRequest(
        model_name=name, requested_output_names=[output], inputs=inputs, **more
    )

def answer(array, name="OUT"):
    return pb_utils.InferenceResponse([pb_utils.Tensor(name, array)])

def failure(response):
    error = response.error()
    return pb_utils.InferenceResponse(error=pb_utils.TritonError(error.message(), error.code()))

def order(request):
    return json.loads(request.parameters())

"""


def write_python(
    root: Path,
    name: str,
    code: str,
    more: str = "instance_group { kind: KIND_CPU }",
    config: str = ROW,
) -> None:
    """A python model whose file is `HEAD` and `code`; `more`: of its config."""
    folder = root / name / "1"
    folder.mkdir(parents=True)
    (folder / "model.py").write_text(HEAD + dedent(code))
    (root / name / "config.pbtxt").write_text(config.format(backend="python", more=more))


def write_rows(root: Path, name: str, more: str = "") -> None:
    """An identity model of rows of floats."""
    (root / name / "1").mkdir(parents=True)
    text = ROW.format(backend="identity", more=more).replace('"OUT"', '"IN"')
    (root / name / "config.pbtxt").write_text(text)


CALLER = """
class TritonPythonModel:
    def execute(self, requests):
        return [self.one(request) for request in requests]

    def one(self, request):
        given = order(request)
        array = request.inputs()[0].as_numpy()
        more = {"trace": request.trace()} if given.get("traced") else {}
        response = asked(given["callee"], array, given.get("output", "OUT"), **more).exec()
        if response.has_error():
            return failure(response)
        return answer(response.output_tensors()[0].as_numpy() + 1)
"""
"""Calls the model of the parameter `callee` and adds one to what it answers."""

DOUBLE = """
class TritonPythonModel:
    def execute(self, requests):
        return [answer(request.inputs()[0].as_numpy() * 2) for request in requests]
"""
