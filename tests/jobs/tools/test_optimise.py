"""Optimisation, by the process that the worker starts."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from control.jobs.specs.optimise import OptimiseSpec
from jobs.tools.optimise.half_weights import halve_weights
from support.tool_sources import DIGITS_FILE, digits_rows, digits_source
from support.tools import ToolRun, run_tool

pytestmark = pytest.mark.slow

CONFIG = """\
name: "wordy"
backend: "onnxruntime"
max_batch_size: 8
input { name: "X" data_type: TYPE_FP32 dims: [ 64 ] }
output { name: "Y" data_type: TYPE_FP32 dims: [ 64 ] }
"""


def wordy_source(folder: Path) -> Path:
    """A product with constants to fold, identities to drop and a branch that nothing reads."""
    folder.mkdir(parents=True)
    weights = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("Transpose", ["W"], ["WT"], "turn", perm=[1, 0]),
            helper.make_node("Identity", ["X"], ["X1"], "same"),
            helper.make_node("MatMul", ["X1", "WT"], ["P"], "product"),
            helper.make_node("Neg", ["P"], ["unread"], "dead"),
            helper.make_node("Identity", ["P"], ["P1"], "same_again"),
            helper.make_node("Relu", ["P1"], ["Y"], "relu"),
        ],
        "wordy",
        [helper.make_tensor_value_info("X", TensorProto.FLOAT, ["n", 64])],
        [helper.make_tensor_value_info("Y", TensorProto.FLOAT, ["n", 64])],
        initializer=[numpy_helper.from_array(weights, "W")],
    )
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), folder / "model.onnx")
    (folder / "config.pbtxt").write_text(CONFIG)
    return folder


def optimise(folder: Path, **fields: Any) -> ToolRun:
    spec = OptimiseSpec(model="wordy", version=1, **fields)
    return run_tool(folder / "run", spec, wordy_source(folder / "source"))


@pytest.fixture(scope="module")
def optimised(tmp_path_factory: pytest.TempPathFactory) -> ToolRun:
    return optimise(tmp_path_factory.mktemp("optimised"))


def test_graph_has_fewer_nodes_and_the_same_answers(optimised: ToolRun, tmp_path: Path) -> None:
    source = onnx.load(wordy_source(tmp_path / "source") / "model.onnx")
    rows = np.random.default_rng(1).standard_normal((3, 64)).astype(np.float32)
    (weights,) = [numpy_helper.to_array(one) for one in source.graph.initializer]
    (found,) = optimised.answer({"X": rows})
    np.testing.assert_allclose(found, np.maximum(rows @ weights.T, 0), rtol=1e-4, atol=1e-4)
    assert optimised.report.figures[0].before == 6
    assert optimised.report.figures[0].after == 2


def test_report_draws_the_graph_before_and_after(optimised: ToolRun) -> None:
    before, after = optimised.report.graphs
    assert [one.operator for one in after.nodes] == ["MatMul", "Relu"]
    assert after.nodes[1].reads == (0,)
    assert len(before.nodes) == 6


def test_both_shapes_are_compared(optimised: ToolRun) -> None:
    assert [row[1] for row in optimised.report.tables[0].rows] == ["X [1, 64]", "X [5, 64]"]


@pytest.mark.parametrize("weights", ["fp16", "bf16"])
def test_weights_in_16_bits_halve_the_file_and_answer_nearly_as_before(
    weights: str, tmp_path: Path
) -> None:
    run = optimise(tmp_path, weights=weights)
    size = run.report.figures[1]
    assert run.report.verdict == "accepted"
    assert size.after is not None
    assert size.after < 0.55 * float(size.before or 0)
    assert 0 < float(run.report.figures[2].after or 0) < 0.02


def test_tolerance_of_zero_refuses_weights_in_16_bits(tmp_path: Path) -> None:
    run = optimise(tmp_path, weights="fp16", tolerance=0.0)
    assert run.report.verdict == "refused"
    assert "at most 0 is accepted" in run.report.reasons[0]
    assert list(run.output.iterdir()) == []


def test_rows_of_the_data_file_are_compared_where_there_is_one(tmp_path: Path) -> None:
    spec = OptimiseSpec(model="digits", version=2)
    run = run_tool(tmp_path / "run", spec, digits_source(tmp_path / "source"), digits_rows(64))
    assert {row[0] for row in run.report.tables[0].rows} == {"data"}
    assert run.report.verdict == "accepted"


def test_damaged_network_is_refused(tmp_path: Path) -> None:
    source = wordy_source(tmp_path / "source")
    (source / "model.onnx").write_bytes(b"\x00" * 100)
    run = run_tool(tmp_path / "run", OptimiseSpec(model="wordy", version=1), source)
    assert "is no valid ONNX file" in run.refusal


def test_weights_that_16_bits_cannot_hold_stay() -> None:
    network = onnx.load(DIGITS_FILE)
    largest = max(network.graph.initializer, key=lambda one: np.prod(one.dims))
    array = numpy_helper.to_array(largest) * np.float32(1e6)
    largest.CopyFrom(numpy_helper.from_array(array, largest.name))
    assert halve_weights(network, "fp16").too_large == 1
    assert halve_weights(network, "bf16").too_large == 0
