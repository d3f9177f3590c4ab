"""Pruning a version by its recipe, in a process of its own."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

from control.jobs.messages import CurvePoint
from control.jobs.report import Report
from control.jobs.specs.prune import PruneSpec
from support.tools import run_tool

pytestmark = pytest.mark.slow


def figure(report: Report, name: str) -> tuple[float | None, float | None]:
    found = next(one for one in report.figures if one.name == name)
    return found.before, found.after


def test_channels_are_removed_and_the_rest_learns_again(dots: Path, tmp_path: Path) -> None:
    spec = PruneSpec(model="dots", version=1, amount=0.5, epochs=4, floor=5.0)
    run = run_tool(tmp_path / "run", spec, dots)
    report = run.report
    assert report.verdict == "accepted", report.reasons
    before, after = figure(report, "parameters")
    assert before is not None
    assert after is not None
    assert after < 0.5 * before
    before, after = figure(report, "held-out accuracy")
    assert before is not None
    assert after is not None
    assert after >= before - 5.0
    assert report.warnings == () or "slower" in report.warnings[0]
    curves = {one.curve for one in run.messages if isinstance(one, CurvePoint)}
    assert curves == {"loss", "held-out accuracy"}
    assert run.fractions == sorted(run.fractions)


def test_the_result_is_a_version_that_takes_any_number_of_rows(dots: Path, tmp_path: Path) -> None:
    run = run_tool(tmp_path / "run", PruneSpec(model="dots", version=1, epochs=0, floor=100), dots)
    assert run.report.verdict == "accepted"
    assert {one.name for one in run.output.iterdir()} == {"config.pbtxt", "1"}
    session = onnxruntime.InferenceSession(str(run.output / "1" / "model.onnx"))
    for rows in (1, 5):
        (logits,) = session.run(["LOGITS"], {"IMAGE": np.zeros((rows, 1, 8, 8), np.float32)})
        assert logits.shape == (rows, 10)


def test_two_of_every_four_weights_are_zero_and_no_speed_is_promised(
    dots: Path, tmp_path: Path
) -> None:
    spec = PruneSpec(model="dots", version=1, method="2:4", epochs=1, floor=5.0)
    run = run_tool(tmp_path / "run", spec, dots)
    network = onnx.load(run.output / "1" / "model.onnx")
    arrays = {one.name: numpy_helper.to_array(one) for one in network.graph.initializer}
    (last,) = (one for one in arrays.values() if one.shape == (10, 128))
    assert (np.count_nonzero(last.reshape(-1, 4), axis=1) <= 2).all()
    assert any("no speed on a CPU" in one for one in run.report.warnings)


def test_more_accuracy_lost_than_allowed_is_refused(dots: Path, tmp_path: Path) -> None:
    spec = PruneSpec(model="dots", version=1, amount=0.9, epochs=0, floor=1.0)
    report = run_tool(tmp_path / "run", spec, dots).report
    assert report.verdict == "refused"
    assert "points lost, and 1 are allowed" in report.reasons[0]


def test_a_layer_to_keep_that_is_not_there_is_refused(dots: Path, tmp_path: Path) -> None:
    run = run_tool(tmp_path / "run", PruneSpec(model="dots", version=1, keep=("head",)), dots)
    assert run.refusal == "keep names 'head', which the network does not have; it has 0, 4, 9"
