"""XGBoost: model.json or model.ubj, the formats that hold data only, on the CPU.

`inplace_predict` releases the GIL and may be called by several threads at once.
"""

import json
from pathlib import Path
from typing import Any

import xgboost
from tritonclient.grpc import model_config_pb2 as pb

from backends.artefact import artefact_path, complete_config, name_file, refuse, require_cpu
from backends.seam import Device, LoadedInstances
from backends.trees.booster import BoosterInstance, Predict, booster_artefact
from repository.config.tensors import Array
from repository.model import ModelConfig, ModelVersion

ENDINGS = (".json", ".ubj")
_ONE_COLUMN = frozenset(("multi:softmax",))
"""Objectives with several classes whose prediction is the class itself."""
_FAILURES = (xgboost.core.XGBoostError, ValueError, TypeError, UnicodeDecodeError)


class XGBoost:
    """The backend `xgboost`."""

    def complete(self, version: ModelVersion, default_max_batch: int) -> ModelConfig:
        """See `backends.seam.Backend`; reads the trees, predicts nothing."""
        path = _model_file(version)
        booster = _opened(version, path, 1)
        learner = json.loads(booster.save_config())["learner"]
        numbers = learner["learner_model_param"]
        columns = max(int(numbers["num_class"]), int(numbers["num_target"]), 1)
        if learner["objective"]["name"] in _ONE_COLUMN:
            columns = 1
        features = int(booster.num_features())
        artefact = booster_artefact(version, path.name, features, columns, pb.TYPE_FP32)
        config = complete_config(version, "xgboost", artefact, default_max_batch)
        name_file(config, path.name)
        return config

    def load(self, version: ModelVersion, device: Device, count: int) -> LoadedInstances:
        """`count` instances that share one booster. Raises LoadFailed in XGBoost's words."""
        require_cpu(version, device, "XGBoost")
        path = _model_file(version)
        predict = _predictor(_opened(version, path, max(device.threads, 1)))
        instances = [BoosterInstance(version, device, predict, _FAILURES) for _ in range(count)]
        return LoadedInstances(instances, version.config)


def _model_file(version: ModelVersion) -> Path:
    path = artefact_path(version, "model.json", "model.ubj")
    if path.suffix not in ENDINGS:  # by another name XGBoost reads its old binary format
        refuse(version, f"{path.name} must end in one of {', '.join(ENDINGS)}; save it anew so")
    return path


def _opened(version: ModelVersion, path: Path, threads: int) -> Any:
    try:
        return xgboost.Booster({"nthread": threads}, model_file=str(path))
    except _FAILURES as error:
        refuse(version, f"{path.name} is not a model that XGBoost reads: {_cause(error)}")


def _cause(error: Exception) -> str:
    """XGBoost's message without the time, its source line and the stack below it."""
    text = str(error).partition("\nStack trace:")[0]
    return " ".join(text.rpartition(": ")[2].split()) or type(error).__name__


def _predictor(booster: Any) -> Predict:
    learner = json.loads(booster.save_config())["learner"]
    if learner["gradient_booster"]["name"] != "gblinear":
        return booster.inplace_predict  # type: ignore[no-any-return]

    def predict(rows: Array) -> Any:  # of linear boosters it has no other
        return booster.predict(xgboost.DMatrix(rows, nthread=1))

    return predict
