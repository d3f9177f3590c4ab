"""LightGBM (model.txt) to ONNX."""

from pathlib import Path
from typing import Any

import lightgbm
import onnx
from onnxmltools import convert_lightgbm
from onnxmltools.convert.common.data_types import FloatTensorType
from tritonclient.grpc import model_config_pb2 as pb

from control.jobs.specs.convert import ConvertSpec
from jobs.tools.convert.boosters import Prediction, TreeBooster, booster_source
from jobs.tools.convert.source_network import SourceNetwork
from jobs.tools.networks.files import first_line, version_name
from jobs.tools.work import refuse


def open_source(path: Path, config: pb.ModelConfig, spec: ConvertSpec) -> SourceNetwork:
    """The booster on one thread. Refuses a file that is none."""
    what = f"{path.name} of {version_name(spec)}"
    try:
        booster = lightgbm.Booster(model_file=str(path))
    except (lightgbm.basic.LightGBMError, ValueError, TypeError, OSError) as error:
        refuse(f"{what} is not a model that LightGBM reads: {first_line(error)}")
    features = int(booster.num_feature())
    objective = str(booster.dump_model(num_iteration=1).get("objective", ""))

    def convert(name: str) -> onnx.ModelProto:
        shape = [(name, FloatTensorType([None, features]))]
        found: onnx.ModelProto = convert_lightgbm(booster, initial_types=shape, zipmap=False)
        return found

    def predict(rows: Any) -> Any:
        return booster.predict(rows, num_threads=1)

    prediction: Prediction = "second column" if objective.startswith("binary") else "column"
    trees = TreeBooster(
        "a LightGBM model", predict, convert, features, prediction, ("lightgbm", "onnxmltools")
    )
    return booster_source(trees, config, spec)
