"""Four layers of 512 with dynamic batching: whether requests of one row become batches."""

import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from benchmarks.load import fire
from benchmarks.models import rows, save
from benchmarks.peers import modelyard, triton
from benchmarks.report import Report
from benchmarks.rounds import Contest, Plan, interleave
from benchmarks.scenarios.roster import Roster
from benchmarks.shots import Problem, binary_shot, grpc_shot

NAME = "MLP"
CONCURRENCY = 32
LAYERS, WIDTH = 4, 512

_CONFIG = """
backend: "onnxruntime"
max_batch_size: 64
dynamic_batching { }
"""


def measure(plan: Plan, report: Report) -> None:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=plan.cache)))
        weights = _weights()
        save(_graph(weights), folder / "mlp")
        (folder / "mlp" / "config.pbtxt").write_text(_CONFIG)
        problem = _problem(weights)
        roster = Roster(plan, report, stack)
        peers = [
            *roster.enter("modelyard", modelyard.settled(folder, plan.cache, None)),
            *roster.enter("triton", triton.started(plan.triton, folder, plan.cache)),
        ]
        contests = [
            Contest(
                NAME,
                peer.name,
                shot.wire,
                CONCURRENCY,
                partial(
                    fire,
                    shot,
                    peer.address(shot.wire),
                    peer.process,
                    CONCURRENCY,
                    plan.duration_s,
                ),
            )
            for shot in (binary_shot(problem), grpc_shot(problem))
            for peer in peers
        ]
        report.rows += interleave(contests, plan.rounds)


def _weights() -> list[NDArray[np.float32]]:
    random = np.random.default_rng(5)
    scale = np.float32(1 / WIDTH**0.5)
    return [random.standard_normal((WIDTH, WIDTH), dtype=np.float32) * scale for _ in range(LAYERS)]


def _graph(weights: list[NDArray[np.float32]]) -> onnx.GraphProto:
    """Each layer multiplies and rectifies."""
    nodes, values = [], "X"
    for number, _ in enumerate(weights):
        after = "Y" if number == LAYERS - 1 else f"rectified_{number}"
        nodes.append(helper.make_node("MatMul", [values, f"W{number}"], [f"product_{number}"]))
        nodes.append(helper.make_node("Relu", [f"product_{number}"], [after]))
        values = after
    initializer = [numpy_helper.from_array(one, f"W{n}") for n, one in enumerate(weights)]
    return helper.make_graph(
        nodes, "mlp", [rows("X", WIDTH)], [rows("Y", WIDTH)], initializer=initializer
    )


def _problem(weights: list[NDArray[np.float32]]) -> Problem:
    row = np.random.default_rng(6).standard_normal((1, WIDTH), dtype=np.float32)
    answer = row
    for one in weights:
        answer = np.maximum(answer @ one, 0)
    return Problem("mlp", "X", row, "Y", answer)
