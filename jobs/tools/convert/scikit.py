"""Pickled scikit-learn models to ONNX; only where the spec says that the pickle is trusted."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import onnx
from skl2onnx import convert_sklearn
from skl2onnx.common.data_types import FloatTensorType
from tritonclient.grpc import model_config_pb2 as pb

from control.jobs.specs.convert import ConvertSpec
from jobs.tools.convert.binary_scores import mend_scores
from jobs.tools.convert.onnx_results import onnx_config, open_onnx
from jobs.tools.convert.signatures import write_signature
from jobs.tools.convert.source_network import SourceNetwork
from jobs.tools.convert.tree_rows import tree_rows
from jobs.tools.networks.files import FILE, first_line, save_network, version_name
from jobs.tools.networks.sessions import open_session, outputs_of
from jobs.tools.networks.tensors import NetworkTensor, Rows
from jobs.tools.work import refuse

INPUT = "input"
OPSETS = {"": 17, "ai.onnx.ml": 3}


def open_source(path: Path, config: pb.ModelConfig, spec: ConvertSpec) -> SourceNetwork:
    """The estimator, unpickled. Refuses what is none, and what skl2onnx cannot convert."""
    what = f"{path.name} of {version_name(spec)}"
    model = _unpickled(path, what)
    features = int(model.n_features_in_)
    name = config.input[0].name if len(config.input) == 1 else INPUT
    given = NetworkTensor(name, np.float32, (None, features))
    network = _converted(model, given, what)
    mend_scores(network, model, features)
    outputs = outputs_of(open_session(network.SerializeToString(), "the result"))
    result = onnx_config(config, spec.model)
    write_signature(result, [given], outputs)
    result.max_batch_size = config.max_batch_size or spec.max_batch_size
    nan = _takes_nan(model, features)

    def run(rows: Rows) -> Rows:
        return _answers(model, rows[name], outputs)

    def write(folder: Path) -> list[str]:
        save_network(network, folder / FILE)
        if not nan:
            return ["the source takes no missing values (NaN), so none were compared"]
        return [] if spec.missing else ["rows with missing values (NaN) were not compared"]

    return SourceNetwork(
        f"a scikit-learn {type(model).__name__}", [given], run, write, open_onnx, result,
        ("scikit-learn", "skl2onnx"),
        tree_rows(network, given, features, 0, nan=nan and spec.missing), nan=nan,
    )  # fmt: skip


def _unpickled(path: Path, what: str) -> Any:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            model = joblib.load(path)
        except Exception as error:  # noqa: BLE001 - a pickle runs any code
            refuse(f"{what} cannot be unpickled: {type(error).__name__}: {first_line(error)}")
    if not hasattr(model, "predict") or not hasattr(model, "n_features_in_"):
        refuse(f"{what} is a {type(model).__name__}; a fitted scikit-learn estimator is needed")
    for one in caught:
        if "version" in str(one.message):
            print(one.message)  # noqa: T201 - into the job's log
    return model


def _converted(model: Any, given: NetworkTensor, what: str) -> onnx.ModelProto:
    plain: dict[int, dict[str, bool]] = {id(model): {"zipmap": False}}
    reasons = []
    # Some classifiers give no dictionaries, and do not know the option.
    for options in (plain, None) if hasattr(model, "classes_") else (None,):
        try:
            network: onnx.ModelProto = convert_sklearn(
                model, initial_types=[(given.name, FloatTensorType([None, given.shape[1]]))],
                options=options, target_opset=OPSETS,
            )  # fmt: skip
        except Exception as error:  # noqa: BLE001 - converters raise what a model provokes
            reasons.append(first_line(error))
        else:
            return network
    return refuse(
        f"skl2onnx cannot convert {what}, a {type(model).__name__}: {reasons[-1]}; "
        "serve it from a model.py instead, or train one that it can convert"
    )


def _answers(model: Any, rows: Any, outputs: Sequence[NetworkTensor]) -> Rows:
    """Labels and, of those that have them, probabilities or scores, under the names of the
    converted outputs."""
    found = [np.asarray(model.predict(rows))]
    if len(outputs) > 1:
        found.append(_scores(model, rows, outputs[1]))
    return {one.name: _shaped(values, one) for one, values in zip(outputs, found, strict=False)}


def _scores(model: Any, rows: Any, tensor: NetworkTensor) -> Any:
    """Probabilities, or the decision function of what has none: of two classes, that of either
    where the network gives both. Refuses an estimator with neither."""
    if hasattr(model, "predict_proba"):
        return np.asarray(model.predict_proba(rows))
    if not hasattr(model, "decision_function"):
        refuse(
            f"a {type(model).__name__} has neither predict_proba nor decision_function to compare "
            f"the output '{tensor.name}' with; serve it from a model.py instead"
        )
    found = np.asarray(model.decision_function(rows))
    both = found.ndim == 1 and len(tensor.shape) == 2 and tensor.shape[1] == 2
    return np.stack([-found, found], axis=1) if both else found


def _shaped(values: Any, tensor: NetworkTensor) -> Any:
    shaped = values.reshape(len(values), -1) if len(tensor.shape) == 2 else values
    return shaped.astype(tensor.dtype)


def _takes_nan(model: Any, features: int) -> bool:
    rows = np.zeros((2, features), np.float32)
    rows[0] = np.nan
    try:
        model.predict(rows)
    except ValueError:
        return False
    return True
