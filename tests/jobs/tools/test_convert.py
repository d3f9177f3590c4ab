"""Conversions, by the process that the worker starts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import (
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from control.jobs.specs.convert import ConvertSpec
from support.convert_sources import (
    encoder_source,
    lightgbm_source,
    onnx_source,
    program_source,
    scikit_source,
    set_checkpoint_field,
    table,
    torchscript_source,
    xgboost_source,
)
from support.tools import ToolRun, run_tool

pytestmark = pytest.mark.slow

Source = Callable[[Path], Path]


def convert(folder: Path, source: Source, rows: Any = None, **fields: Any) -> ToolRun:
    spec = ConvertSpec(model="converted", version=1, **fields)
    return run_tool(folder / "run", spec, source(folder / "source"), rows)


def checked_rows(run: ToolRun) -> dict[str, int]:
    """Numbers of rows compared, by where they come from."""
    found: dict[str, int] = {}
    for row in run.report.tables[0].rows:
        found[str(row[0])] = found.get(str(row[0]), 0) + int(row[3] or 0)
    return found


@pytest.mark.parametrize(
    ("source", "exporter"),
    [
        (torchscript_source, "auto"),
        (program_source, "auto"),
        (program_source, "torchscript"),
    ],
)
def test_torch_networks_answer_any_number_of_rows_in_onnx(
    source: Source, exporter: str, tmp_path: Path
) -> None:
    run = convert(tmp_path, source, exporter=exporter)
    assert run.report.verdict == "accepted"
    (scores,) = run.answer({"IMAGE": np.zeros((7, 3, 64, 64), np.float32)})
    assert scores.shape == (7, 100)
    assert 'backend: "onnxruntime"' in run.config()


@pytest.mark.parametrize(
    "source",
    [
        lambda folder: xgboost_source(folder, "digits", objective="multi:softprob", num_class=10),
        lambda folder: xgboost_source(folder, "digits", objective="multi:softmax", num_class=10),
        lambda folder: xgboost_source(folder, "cancer", objective="binary:logistic"),
        lambda folder: xgboost_source(folder, "diabetes", objective="reg:squarederror"),
        lambda folder: lightgbm_source(folder, "digits", objective="multiclass", num_class=10),
        lambda folder: lightgbm_source(folder, "cancer", objective="binary"),
        lambda folder: lightgbm_source(folder, "diabetes", objective="regression"),
    ],
    ids=["softprob", "softmax", "logistic", "squares", "multiclass", "binary", "regression"],
)
def test_boosters_answer_as_before_in_onnx_also_where_values_are_missing(
    source: Source, tmp_path: Path
) -> None:
    run = convert(tmp_path, source)
    assert run.report.verdict == "accepted"
    assert checked_rows(run)["with missing values"] == 256
    assert run.config().count("dims") == (tmp_path / "source/config.pbtxt").read_text().count(
        "dims"
    )


@pytest.mark.parametrize(
    ("estimator", "data"),
    [
        (GradientBoostingClassifier(n_estimators=10), "cancer"),
        (HistGradientBoostingClassifier(max_iter=10), "cancer"),
        (make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000)), "cancer"),
        (make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000)), "digits"),
    ],
    ids=["boosting", "histogram", "pipeline", "classes"],
)
def test_trusted_estimators_give_labels_and_probabilities(
    estimator: Any, data: str, tmp_path: Path
) -> None:
    rows, _ = table(data)
    run = convert(
        tmp_path, lambda folder: scikit_source(folder, estimator, data),
        {"input": rows[:200]}, trusted=True,
    )  # fmt: skip
    labels, probabilities = run.answer({"input": rows})
    assert run.report.verdict == "accepted"
    assert checked_rows(run)["data, all rows"] == 2 * 200
    assert np.mean(labels == estimator.predict(rows)) == 1.0
    assert probabilities.shape == (len(rows), len(estimator.classes_))


def test_pickle_that_nobody_trusts_is_not_loaded(tmp_path: Path) -> None:
    source = scikit_source(tmp_path / "source", RandomForestRegressor(2), "diabetes")
    (source / "model.joblib").write_bytes(
        b"cos\nsystem\n(S'touch " + bytes(tmp_path) + b"/ran'\ntR."
    )
    run = run_tool(tmp_path / "run", ConvertSpec(model="forest", version=1), source)
    assert "an administrator who trusts its publisher" in run.refusal
    assert not (tmp_path / "ran").exists()


def test_forest_that_loses_missing_values_is_refused_unless_there_are_none(tmp_path: Path) -> None:
    """scikit-learn's forests send NaN down a branch that skl2onnx does not write."""

    def source(folder: Path) -> Path:
        return scikit_source(folder, RandomForestClassifier(20, random_state=0), "digits")

    refused = convert(tmp_path / "first", source, trusted=True).report
    accepted = convert(tmp_path / "second", source, trusted=True, missing=False).report
    assert refused.verdict == "refused"
    assert any("the label of" in warning for warning in refused.warnings)
    assert accepted.verdict == "accepted"
    assert "rows with missing values (NaN) were not compared" in accepted.warnings


@pytest.mark.parametrize(("heads", "exporter"), [(True, "auto"), (False, "auto"), (True, "dynamo")])
def test_encoders_answer_texts_of_any_length_in_onnx(
    heads: bool, exporter: str, tmp_path: Path
) -> None:
    run = convert(tmp_path, lambda folder: encoder_source(folder, heads=heads), exporter=exporter)
    assert run.report.verdict == "accepted"
    given = {
        name: np.ones((3, 11), np.int64)
        for name in ("input_ids", "attention_mask", "token_type_ids")
    }
    assert run.answer(given)[0].shape == ((3, 3) if heads else (3, 11, 32))


def test_openvino_ir_is_exact_unless_half_is_asked_for(tmp_path: Path) -> None:
    exact = convert(tmp_path / "exact", onnx_source, target="openvino")
    half = convert(tmp_path / "half", onnx_source, target="openvino", weights="fp16")
    sizes = [(run.output / "1" / "model.bin").stat().st_size for run in (exact, half)]
    assert exact.report.verdict == half.report.verdict == "accepted"
    assert sizes[1] < 0.51 * sizes[0]
    assert 'backend: "openvino"' in exact.config()


def test_ncnn_keeps_the_names_of_inputs_and_outputs(tmp_path: Path) -> None:
    pytest.importorskip("pnnx")
    run = convert(tmp_path, onnx_source, target="ncnn")
    assert run.report.verdict == "accepted"
    words = (run.output / "1" / "model.param").read_text().split()
    assert {"IMAGE", "SCORES"} <= set(words)
    assert {one.name for one in (run.output / "1").iterdir()} == {"model.param", "model.bin"}


def test_tolerance_of_zero_refuses_what_is_not_the_same(tmp_path: Path) -> None:
    run = convert(tmp_path, torchscript_source, tolerance=0.0)
    assert run.report.verdict == "refused"
    assert "differ by more than 0 of the output's largest value" in run.report.reasons[0]
    assert list(run.output.iterdir()) == []


def with_file(name: str, content: bytes = b"nothing") -> Source:
    def write(folder: Path) -> Path:
        folder.mkdir(parents=True)
        (folder / "config.pbtxt").write_text('name: "x"\nmax_batch_size: 4\n')
        (folder / name).write_bytes(content)
        return folder

    return write


def damaged_script(folder: Path) -> Path:
    torchscript_source(folder)
    data = (folder / "model.pt").read_bytes()
    (folder / "model.pt").write_bytes(data[: len(data) // 2])
    return folder


def without_tensors(folder: Path) -> Path:
    torchscript_source(folder)
    (folder / "config.pbtxt").write_text('name: "x"\n')
    return folder


def encoder_with(**fields: Any) -> Source:
    return lambda folder: set_checkpoint_field(encoder_source(folder), **fields)


@pytest.mark.parametrize(
    ("source", "fields", "reason"),
    [
        (damaged_script, {}, "is no TorchScript"),
        (without_tensors, {}, "config.pbtxt must list input and output"),
        (onnx_source, {}, "is ONNX already"),
        (torchscript_source, {"target": "openvino"}, "convert it to ONNX first"),
        (onnx_source, {"target": "litert"}, "litert-torch needs an environment of 1.9 GB"),
        (with_file("model.json"), {}, "is not a model that XGBoost reads"),
        (with_file("model.txt"), {}, "is not a model that LightGBM reads"),
        (with_file("model.pkl"), {"trusted": True}, "cannot be unpickled"),
        (with_file("model.keras"), {}, "TensorFlow's files need an environment of their own"),
        (with_file("saved_model.pb"), {}, "TensorFlow's files need an environment of their own"),
        (with_file("model.pth"), {}, "weights alone are no network"),
        (with_file("README.md"), {}, "no file of a known format"),
        (with_file("model.onnx"), {"target": "ncnn"}, "is no valid ONNX file"),
        (encoder_with(architectures=["LlamaForCausalLM"]), {}, "serve the folder itself"),
        (encoder_with(architectures=["Nothing"]), {}, "which transformers does not have"),
        (encoder_with(auto_map={"AutoModel": "m.M"}), {}, "needs code of its own"),
    ],
    ids=lambda value: value[:24] if isinstance(value, str) else "",
)
def test_what_cannot_be_converted_is_refused_with_the_reason(
    source: Source, fields: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    assert reason in convert(tmp_path, source, **fields).refusal
