"""Quantisation, by the process that the worker starts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from control.jobs.report import Figure
from control.jobs.specs.quantise import QuantiseSpec
from support.tool_sources import digits_rows, digits_source
from support.tools import ToolRun, run_tool

pytestmark = pytest.mark.slow

Rows = dict[str, Any]


def quantise(folder: Path, rows: Rows | Path | None, **fields: Any) -> ToolRun:
    spec = QuantiseSpec(model="digits", version=2, **fields)
    return run_tool(folder / "run", spec, digits_source(folder / "source"), rows)


@pytest.fixture(scope="module")
def quantised(tmp_path_factory: pytest.TempPathFactory) -> ToolRun:
    return quantise(tmp_path_factory.mktemp("quantised"), digits_rows(), samples=64)


def figures(run: ToolRun) -> dict[str, Figure]:
    return {one.name: one for one in run.report.figures}


def test_quantised_network_reads_digits_right(quantised: ToolRun) -> None:
    rows = digits_rows()
    (logits,) = quantised.answer({"IMAGE": rows["IMAGE"]})
    assert np.mean(logits.argmax(axis=1) == rows["labels"]) > 0.97


def test_report_has_size_accuracy_and_latency_before_and_after(quantised: ToolRun) -> None:
    found = figures(quantised)
    assert found["size"].after == (quantised.output / "1" / "model.onnx").stat().st_size
    assert found["accuracy"].before is not None
    assert found["accuracy"].before > 0.97
    assert found["latency, batch 1"].after
    assert found["latency, batch 8"].after
    assert quantised.report.verdict == "accepted"


def test_config_of_the_source_serves_the_result(quantised: ToolRun) -> None:
    config = quantised.config()
    assert 'label_filename: "labels.txt"' in config
    assert "max_batch_size: 64" in config
    assert "default_model_filename" not in config


def test_progress_never_goes_back(quantised: ToolRun) -> None:
    assert len(quantised.fractions) > 5
    assert quantised.fractions == sorted(quantised.fractions)


def test_report_names_spec_versions_digests_and_cpu(quantised: ToolRun) -> None:
    report = quantised.report
    assert report.spec["samples"] == 64
    assert report.spec["floor"] == 0.99
    assert {"onnxruntime", "onnx"} <= report.versions.keys()
    assert {"source/model.onnx", "source/config.pbtxt", "data/rows.npz"} == report.digests.keys()
    assert report.cpu


@pytest.mark.parametrize("calibration", ["entropy", "percentile"])
def test_other_calibrations_find_other_ranges(
    calibration: str, quantised: ToolRun, tmp_path: Path
) -> None:
    run = quantise(tmp_path, digits_rows(), samples=64, calibration=calibration)
    assert run.report.verdict == "accepted"
    assert figures(run)["largest difference"] != figures(quantised)["largest difference"]


def test_dynamic_quantisation_needs_no_calibration(tmp_path: Path) -> None:
    run = quantise(tmp_path, digits_rows(), method="dynamic")
    model = onnx.load(run.output / "1" / "model.onnx")
    assert "DynamicQuantizeLinear" in {node.op_type for node in model.graph.node}
    assert ("rows that calibrated", 0) in run.report.tables[0].rows


def test_without_labels_agreement_with_the_source_is_judged(tmp_path: Path) -> None:
    rows = digits_rows()
    del rows["labels"]
    run = quantise(tmp_path, rows)
    assert figures(run)["agreement of the class"].after > 0.98  # type: ignore[operator]
    assert any("no labels" in warning for warning in run.report.warnings)


def test_result_below_the_floor_is_refused_and_not_written(tmp_path: Path) -> None:
    run = quantise(tmp_path, digits_rows(), floor=1.0, compare="values", most_excluded=0)
    assert run.report.verdict == "refused"
    assert "at least 1 must remain" in run.report.reasons[0]
    assert list(run.output.iterdir()) == []


def test_most_sensitive_layers_stay_as_they_are_where_the_floor_is_missed(tmp_path: Path) -> None:
    run = quantise(tmp_path, digits_rows(), floor=0.99999, compare="values", most_excluded=2)
    noises = [row[1] for row in run.report.tables[-1].rows]
    assert noises == sorted(noises, reverse=True)  # type: ignore[type-var]
    assert "stay in float" in run.report.reasons[1]


def test_excluded_node_stays_as_it_is(tmp_path: Path) -> None:
    run = quantise(tmp_path, digits_rows(), exclude=("node_conv2d",))
    model = onnx.load(run.output / "1" / "model.onnx")
    (first,) = [node for node in model.graph.node if node.name == "node_conv2d"]
    assert first.input[0] == "IMAGE"


def without_images(rows: Rows) -> Rows:
    return {"picture": rows["IMAGE"], "labels": rows["labels"]}


def without_rows(rows: Rows) -> Rows:
    return {name: array[:0] for name, array in rows.items()}


def with_few_rows(rows: Rows) -> Rows:
    return {name: array[:20] for name, array in rows.items()}


def with_nan(rows: Rows) -> Rows:
    rows["IMAGE"] = rows["IMAGE"].copy()
    rows["IMAGE"][3, 0, 2] = np.nan
    return rows


def with_flat_images(rows: Rows) -> Rows:
    return rows | {"IMAGE": rows["IMAGE"].reshape(-1, 64)}


def with_text(rows: Rows) -> Rows:
    return rows | {"IMAGE": np.full((700, 1, 8, 8), "x")}


def with_fewer_labels(rows: Rows) -> Rows:
    return rows | {"labels": rows["labels"][:-1]}


def with_noise(rows: Rows) -> Rows:
    return rows | {"IMAGE": np.random.default_rng(1).random((700, 1, 8, 8), np.float32)}


def with_objects(rows: Rows) -> Rows:
    return rows | {"IMAGE": np.array([{}] * 700, dtype=object)}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (without_images, "the network's inputs are 'IMAGE'"),
        (without_rows, "has no rows"),
        (with_few_rows, "has 20 rows; at least 32 are needed"),
        (with_nan, "1 of 700 rows of the data's array 'IMAGE' hold NaN"),
        (with_flat_images, "has the shape [700, 64]; the input takes ['rows', 1, 8, 8]"),
        (with_text, "the input takes float32"),
        (with_fewer_labels, "must be integers [700]"),
        (with_noise, "noise of a uniform distribution"),
        (with_objects, "cannot be read"),
    ],
)
def test_data_that_cannot_calibrate_is_refused(
    change: Callable[[Rows], Rows], reason: str, tmp_path: Path
) -> None:
    assert reason in quantise(tmp_path, change(digits_rows())).refusal


def test_missing_data_is_refused_with_what_to_give(tmp_path: Path) -> None:
    refusal = quantise(tmp_path, None).refusal
    assert "the job has no data; give an .npz file with an array for each input" in refusal


def test_data_that_is_no_npz_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("1,2,3\n")
    assert "'rows.csv' cannot be read" in quantise(tmp_path, path).refusal


def test_damaged_network_is_refused(tmp_path: Path) -> None:
    source = digits_source(tmp_path / "source")
    data = (source / "model.onnx").read_bytes()
    (source / "model.onnx").write_bytes(data[: len(data) // 2])
    run = run_tool(tmp_path / "run", QuantiseSpec(model="digits", version=2), source, digits_rows())
    assert "model.onnx of model 'digits' version 2 is no valid ONNX file" in run.refusal


def test_version_without_onnx_file_is_refused_with_what_it_has(tmp_path: Path) -> None:
    source = digits_source(tmp_path / "source")
    (source / "model.onnx").rename(source / "model.pt2")
    run = run_tool(tmp_path / "run", QuantiseSpec(model="digits", version=2), source, digits_rows())
    assert "has no ONNX file (it has model.pt2); convert it" in run.refusal


def test_network_without_weights_is_refused(tmp_path: Path) -> None:
    source = digits_source(tmp_path / "source")
    shape = ["n", 1, 8, 8]
    graph = helper.make_graph(
        [helper.make_node("Relu", ["IMAGE"], ["LOGITS"])],
        "relu",
        [helper.make_tensor_value_info("IMAGE", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("LOGITS", TensorProto.FLOAT, shape)],
    )
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), source / "model.onnx")
    run = run_tool(tmp_path / "run", QuantiseSpec(model="digits", version=2), source, digits_rows())
    assert "none of its operators multiplies by weights (Relu)" in run.refusal


def test_unknown_layer_to_exclude_is_refused_with_the_layers(tmp_path: Path) -> None:
    refusal = quantise(tmp_path, digits_rows(), exclude=("conv9",)).refusal
    assert "conv9" in refusal
    assert "node_conv2d" in refusal
