"""Scores of classifiers of two classes without probabilities, as scikit-learn has them.

skl2onnx writes those of SVC as [d, -d], where the decision function d belongs to the second class,
and says of RidgeClassifier's one column that it has two.
"""

from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper

ROWS = 16
_CLASSES = 2


def mend_scores(network: onnx.ModelProto, model: Any, features: int) -> None:
    """Turn the second output of such a network round where its columns are, and have its shape
    say what it gives; leaves all others alone."""
    if hasattr(model, "predict_proba") or not hasattr(model, "decision_function"):
        return
    if len(getattr(model, "classes_", ())) != _CLASSES or len(network.graph.output) < _CLASSES:
        return
    rows = np.random.default_rng(0).normal(size=(ROWS, features)).astype(np.float32)
    wanted = np.asarray(model.decision_function(rows))
    session = onnxruntime.InferenceSession(
        network.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    found = np.asarray(session.run(None, {session.get_inputs()[0].name: rows})[1])
    columns = found.reshape(ROWS, -1).shape[1]
    output = network.graph.output[1]
    if (
        columns == _CLASSES
        and np.abs(found[:, 1] + wanted).sum() < np.abs(found[:, 1] - wanted).sum()
    ):
        _negate(network.graph, output.name)
    if len(output.type.tensor_type.shape.dim) == _CLASSES:
        output.type.tensor_type.shape.dim[1].dim_value = columns


def _negate(graph: onnx.GraphProto, name: str) -> None:
    turned = f"{name}_turned"
    for node in graph.node:
        for place in (node.input, node.output):
            for at, one in enumerate(place):
                if one == name:
                    place[at] = turned
    graph.node.append(helper.make_node("Neg", [turned], [name]))
