"""Boosters of XGBoost answer as the library itself does, from files that hold data only."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xgboost

from backends.errors import ExecutionFailed, InstanceDied, LoadFailed
from backends.loading import load
from backends.trees.xgboost import XGBoost
from repository.config.tensors import Array
from repository.model import ModelVersion
from support.runtime import CPU, batch_of, make_version, member, with_config

ROWS = np.random.default_rng(3).random((120, 5), np.float32)
CLASSES = (ROWS[:, 0] * 3).astype(int)
OBJECTIVES: dict[str, dict[str, Any]] = {
    "regression": {"objective": "reg:squarederror"},
    "two classes": {"objective": "binary:logistic"},
    "probabilities": {"objective": "multi:softprob", "num_class": 3},
    "classes": {"objective": "multi:softmax", "num_class": 3},
    "dart": {"objective": "multi:softprob", "num_class": 3, "booster": "dart"},
    "linear": {"objective": "reg:squarederror", "booster": "gblinear"},
    "quantiles": {"objective": "reg:quantileerror", "quantile_alpha": np.array([0.1, 0.9])},
}
COLUMNS = {"probabilities": 3, "dart": 3, "quantiles": 2}


def trained(name: str) -> Any:
    target = CLASSES > 0 if name == "two classes" else CLASSES
    return xgboost.train(
        {"nthread": 1, "verbosity": 0, **OBJECTIVES[name]}, xgboost.DMatrix(ROWS, target), 4
    )


def completed(version: ModelVersion) -> ModelVersion:
    return with_config(version, XGBoost().complete(version, 4))


def predicted(version: ModelVersion, rows: Array) -> Array:
    (instance,) = XGBoost().load(version, CPU, 1).instances
    (result,) = instance.execute(batch_of(member(input__0=rows))).results
    assert not isinstance(result, Exception), result
    return result["output__0"]


@pytest.mark.parametrize("ending", ["json", "ubj"])
@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_booster_without_a_config_answers_as_xgboost_does(
    name: str, ending: str, tmp_path: Path
) -> None:
    booster, version = trained(name), make_version(tmp_path)
    booster.save_model(version.path / f"model.{ending}")

    version = completed(version)
    found = predicted(version, ROWS[:7])

    columns = COLUMNS.get(name, 1)
    assert [list(tensor.dims) for tensor in version.config.input] == [[5]]
    assert [list(tensor.dims) for tensor in version.config.output] == [[columns]]
    native = booster.predict(xgboost.DMatrix(ROWS[:7])).reshape(7, columns)
    np.testing.assert_allclose(found, native, rtol=1e-6)


def test_nan_is_a_missing_value(tmp_path: Path) -> None:
    booster, version = trained("probabilities"), make_version(tmp_path)
    booster.save_model(version.path / "model.json")
    rows = ROWS[:4].copy()
    rows[:, 0] = np.nan

    found = predicted(completed(version), rows)

    np.testing.assert_allclose(found, booster.predict(xgboost.DMatrix(rows)), rtol=1e-6)


def test_the_names_of_the_config_hold(tmp_path: Path) -> None:
    version = make_version(
        tmp_path, 'max_batch_size: 8 input { name: "rows" } output { name: "risk" }'
    )
    trained("regression").save_model(version.path / "model.json")

    config = completed(version).config

    assert [tensor.name for tensor in (*config.input, *config.output)] == ["rows", "risk"]


def test_another_number_of_features_is_refused_when_it_loads(tmp_path: Path) -> None:
    version = make_version(
        tmp_path,
        'max_batch_size: 8 input { name: "rows" data_type: TYPE_FP32 dims: [ 4 ] }'
        'output { name: "risk" data_type: TYPE_FP32 dims: [ 1 ] }',
    )
    trained("regression").save_model(version.path / "model.json")
    with pytest.raises(LoadFailed, match=r"has shape \[5\].*but dims is \[4\]"):
        completed(version)


@pytest.mark.parametrize("text", ["PK\x03\x04 (not a model", '{"learner": 3}', "{}", "{"])
def test_a_file_that_is_no_booster_is_refused_without_a_stack(text: str, tmp_path: Path) -> None:
    version = make_version(tmp_path)
    (version.path / "model.json").write_text(text)
    with pytest.raises(LoadFailed, match=r"model\.json is not a model that XGBoost reads") as error:
        XGBoost().complete(version, 4)
    assert "libxgboost" not in str(error.value)


def test_a_file_by_another_ending_is_never_read_as_the_old_binary_format(tmp_path: Path) -> None:
    version = make_version(tmp_path, 'default_model_filename: "model.bin"')
    (version.path / "model.bin").write_bytes(b"binf")
    with pytest.raises(LoadFailed, match=r"must end in one of \.json, \.ubj"):
        XGBoost().complete(version, 4)


def test_rows_of_another_width_are_the_requests_error(tmp_path: Path) -> None:
    version = make_version(tmp_path)
    trained("regression").save_model(version.path / "model.json")
    (instance,) = XGBoost().load(completed(version), CPU, 1).instances
    with pytest.raises(ExecutionFailed, match="model 'm' version 1"):
        instance.execute(batch_of(member(input__0=np.ones((1, 9), np.float32))))


def test_a_file_that_names_a_feature_far_away_ends_its_worker_and_nothing_else(
    tmp_path: Path,
) -> None:
    version = make_version(tmp_path)
    path = version.path / "model.json"
    trained("regression").save_model(path)
    saved = json.loads(path.read_text())
    for tree in saved["learner"]["gradient_booster"]["model"]["trees"]:
        tree["split_indices"] = [2_000_000_000] * len(tree["split_indices"])
    path.write_text(json.dumps(saved))

    (instance,) = load(completed(version), CPU, ["m_0"]).instances
    try:
        with pytest.raises(InstanceDied, match="model 'm' version 1"):
            instance.execute(batch_of(member(input__0=ROWS[:2])))
    finally:
        instance.close()
