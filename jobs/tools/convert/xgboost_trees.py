"""XGBoost (model.json, model.ubj) to ONNX."""

import json
from pathlib import Path
from typing import Any

import onnx
import xgboost
from onnxmltools import convert_xgboost
from onnxmltools.convert.common.data_types import FloatTensorType
from tritonclient.grpc import model_config_pb2 as pb

from control.jobs.specs.convert import ConvertSpec
from jobs.tools.convert.boosters import Prediction, TreeBooster, booster_source
from jobs.tools.convert.source_network import SourceNetwork
from jobs.tools.networks.files import first_line, version_name
from jobs.tools.work import refuse


def open_source(path: Path, config: pb.ModelConfig, spec: ConvertSpec) -> SourceNetwork:
    """The booster on one thread. Refuses a file that is none, and linear boosters."""
    what = f"{path.name} of {version_name(spec)}"
    try:
        booster = xgboost.Booster({"nthread": 1}, model_file=str(path))
        learner = json.loads(booster.save_config())["learner"]
    except (xgboost.core.XGBoostError, ValueError, TypeError, KeyError) as error:
        refuse(f"{what} is not a model that XGBoost reads: {first_line(error)}")
    if (kind := learner["gradient_booster"]["name"]) != "gbtree":
        refuse(f"{what} is a booster of kind {kind}; only gbtree can be converted")
    features = int(booster.num_features())

    def convert(name: str) -> onnx.ModelProto:
        _without_names(booster)
        shape = [(name, FloatTensorType([None, features]))]
        found: onnx.ModelProto = convert_xgboost(booster, initial_types=shape)
        return found

    trees = TreeBooster(
        "an XGBoost model", booster.inplace_predict, convert, features,
        _prediction(learner["objective"]["name"]), ("xgboost-cpu", "xgboost", "onnxmltools"),
    )  # fmt: skip
    return booster_source(trees, config, spec)


def _prediction(objective: str) -> Prediction:
    if objective == "multi:softmax":
        return "label"
    return "second column" if objective == "binary:logistic" else "column"


def _without_names(booster: Any) -> None:
    """The converter takes features by index only."""
    booster.feature_names = None
    booster.feature_types = None
