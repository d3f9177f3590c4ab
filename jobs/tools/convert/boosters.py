"""Boosted trees in ONNX with the signature of the booster: one table in, its predictions out."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper
from tritonclient.grpc import model_config_pb2 as pb

from control.jobs.specs.convert import ConvertSpec
from jobs.tools.convert.onnx_results import onnx_config, open_onnx
from jobs.tools.convert.signatures import write_signature
from jobs.tools.convert.source_network import SourceNetwork
from jobs.tools.convert.tree_rows import tree_rows
from jobs.tools.networks.files import FILE, first_line, save_network, version_name
from jobs.tools.networks.tensors import NetworkTensor, Rows
from jobs.tools.work import refuse

Prediction = Literal["column", "second column", "label"]
"""Which of the converter's outputs `predict` returns: all columns of the last, its second one, or
the label."""

_CODES = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.float64): TensorProto.DOUBLE}


class TreeBooster(NamedTuple):
    """A booster of either library. `what`: in words. `predict`: rows [n, features] → [n] or
    [n, columns]; `convert`: the name of the input → what onnxmltools makes of it."""

    what: str
    predict: Callable[[Any], Any]
    convert: Callable[[str], onnx.ModelProto]
    features: int
    prediction: Prediction
    packages: tuple[str, ...]


def booster_source(
    booster: TreeBooster, config: pb.ModelConfig, spec: ConvertSpec
) -> SourceNetwork:
    """The booster, ready to be converted. Refuses what onnxmltools cannot convert."""
    names = [
        tensors[0].name if len(tensors) == 1 else default
        for tensors, default in ((config.input, "input__0"), (config.output, "output__0"))
    ]
    given = NetworkTensor(names[0], np.float32, (None, booster.features))
    sample = _table(booster.predict(np.zeros((2, booster.features), np.float32)))
    try:
        network = booster.convert(names[0])
    except Exception as error:  # noqa: BLE001 - the converters raise what a model provokes
        refuse(f"onnxmltools cannot convert {version_name(spec)}: {first_line(error)}")
    made = with_one_output(network, names[1], sample.dtype, booster.prediction)
    result = onnx_config(config, spec.model)
    returned = NetworkTensor(names[1], sample.dtype, (None, sample.shape[1]))
    if not config.input or not config.output:
        write_signature(result, [given], [returned])
        result.max_batch_size = config.max_batch_size or spec.max_batch_size

    def run(rows: Rows) -> Rows:
        return {names[1]: _table(booster.predict(rows[names[0]]))}

    def write(folder: Path) -> list[str]:
        save_network(made, folder / FILE)
        return []

    extra = tree_rows(made, given, booster.features, 0, nan=spec.missing)
    return SourceNetwork(
        booster.what, [given], run, write, open_onnx, result, booster.packages, extra, nan=True
    )


def with_one_output(
    network: onnx.ModelProto, name: str, dtype: Any, kind: Prediction
) -> onnx.ModelProto:
    """The network with the booster's prediction as its only output, [n, columns] of `dtype`."""
    graph = network.graph
    taken = graph.output[0].name if kind == "label" else graph.output[-1].name
    steps: list[onnx.NodeProto] = []
    if kind == "second column":
        _constant(graph, "second", [1])
        steps.append(helper.make_node("Gather", [taken, "second"], ["of_second"], axis=1))
        taken = "of_second"
    if kind == "label":
        _constant(graph, "as_column", [-1, 1])
        steps.append(helper.make_node("Reshape", [taken, "as_column"], ["label_column"]))
        taken = "label_column"
    code = _CODES[np.dtype(dtype)]
    steps.append(helper.make_node("Cast", [taken], [name], to=code))
    graph.node.extend(steps)
    del graph.output[:]
    graph.output.append(helper.make_tensor_value_info(name, code, ["rows", None]))
    return network


def _constant(graph: onnx.GraphProto, name: str, values: list[int]) -> None:
    graph.initializer.append(helper.make_tensor(name, TensorProto.INT64, [len(values)], values))


def _table(found: Any) -> Any:
    array = np.asarray(found)
    return array.reshape(len(array), -1)
