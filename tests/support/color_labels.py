"""Small ensembles that name the colour of a picture, and find what is red in one."""

from pathlib import Path

import numpy as np
from onnx import GraphProto, TensorProto, helper, numpy_helper

from support.pictures import step_config
from support.runtime import save_graph

ENSEMBLE = """
platform: "ensemble"
max_batch_size: 4
input { name: "PICTURE" data_type: TYPE_STRING dims: 1 }
output { name: "LABELS" data_type: TYPE_STRING dims: -1 }
output { name: "SCORES" data_type: TYPE_FP32 dims: -1 }
output { name: "JSON" data_type: TYPE_STRING dims: 1 }
ensemble_scheduling {
  step { model_name: "color_decode" model_version: -1
    input_map { key: "IMAGE" value: "PICTURE" } output_map { key: "PIXELS" value: "pixels" } }
  step { model_name: "color_mean" model_version: -1
    input_map { key: "X" value: "pixels" } output_map { key: "Y" value: "means" } }
  step { model_name: "color_names" model_version: -1
    input_map { key: "LOGITS" value: "means" }
    output_map { key: "LABELS" value: "LABELS" } output_map { key: "SCORES" value: "SCORES" }
    output_map { key: "JSON" value: "JSON" } }
}
parameters { key: "request_body.image" value { string_value: "PICTURE" } }
"""


def write_color_labels(repository: Path, name: str = "colors") -> None:
    """Four models: JPEG, PNG or WebP → red, green or blue, whichever has most of it."""
    decode, mean, names, whole = (
        repository / one for one in ("color_decode", "color_mean", "color_names", name)
    )
    for folder in (decode, mean, names, whole):
        (folder / "1").mkdir(parents=True)
    (decode / "config.pbtxt").write_text(step_config("image", {"size": "32"}))
    (names / "config.pbtxt").write_text(step_config("classify", {"top_k": "3"}))
    (names / "1" / "labels.txt").write_text("red\ngreen\nblue\n")
    (whole / "config.pbtxt").write_text(ENSEMBLE)
    pixels = helper.make_tensor_value_info("X", TensorProto.FLOAT, ("N", 3, 32, 32))
    means = helper.make_tensor_value_info("Y", TensorProto.FLOAT, ("N", 3))
    node = helper.make_node("ReduceMean", ["X", "axes"], ["Y"], keepdims=0)
    axes = helper.make_tensor("axes", TensorProto.INT64, [2], [2, 3])
    save_graph(mean / "1" / "model.onnx", helper.make_graph([node], "g", [pixels], [means], [axes]))


RED_BOXES = """
platform: "ensemble"
max_batch_size: 4
input { name: "PICTURE" data_type: TYPE_STRING dims: 1 }
output { name: "FOUND" data_type: TYPE_STRING dims: 1 }
output { name: "BOXES" data_type: TYPE_FP32 dims: [ -1, 4 ] }
ensemble_scheduling {
  step { model_name: "red_decode" model_version: -1
    input_map { key: "IMAGE" value: "PICTURE" }
    output_map { key: "PIXELS" value: "pixels" }
    output_map { key: "GEOMETRY" value: "geometry" } }
  step { model_name: "red_cells" model_version: -1
    input_map { key: "X" value: "pixels" }
    output_map { key: "BOXES" value: "cells" } output_map { key: "SCORES" value: "redness" } }
  step { model_name: "red_detect" model_version: -1
    input_map { key: "BOXES" value: "cells" } input_map { key: "SCORES" value: "redness" }
    input_map { key: "GEOMETRY" value: "geometry" }
    output_map { key: "JSON" value: "FOUND" }
    output_map { key: "DETECTION_BOXES" value: "BOXES" } }
}
parameters { key: "request_body.image" value { string_value: "PICTURE" } }
"""


def write_red_boxes(repository: Path, name: str = "red_boxes") -> None:
    """Four models: a picture → those of 8 × 8 cells of its letterbox that are red, as boxes."""
    decode, cells, detect, whole = (
        repository / one for one in ("red_decode", "red_cells", "red_detect", name)
    )
    for folder in (decode, cells, detect, whole):
        (folder / "1").mkdir(parents=True)
    boxed = {"size": "64", "resize": "letterbox", "fill": "0"}
    (decode / "config.pbtxt").write_text(step_config("image", boxed))
    (detect / "config.pbtxt").write_text(step_config("detect", {"score_threshold": "0.5"}))
    (detect / "1" / "labels.txt").write_text("red\n")
    (whole / "config.pbtxt").write_text(RED_BOXES)
    save_graph(cells / "1" / "model.onnx", _red_cells())


def _red_cells() -> GraphProto:
    """X [n, 3, 64, 64] → SCORES [n, 64, 1], how red each cell is, and BOXES [n, 64, 4]."""
    corners = np.array([(8 * x, 8 * y, 8 * x + 8, 8 * y + 8) for y in range(8) for x in range(8)])
    constants = {
        "color": np.array([1, -0.5, -0.5], np.float32).reshape(1, 3, 1, 1),
        "shape": np.array([0, 64, 1]),
        "zero": np.float32(0),
        "corners": corners[None].astype(np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["X", "color"], ["red"]),
        helper.make_node("AveragePool", ["red"], ["cells"], kernel_shape=[8, 8], strides=[8, 8]),
        helper.make_node("Reshape", ["cells", "shape"], ["SCORES"]),
        helper.make_node("Mul", ["SCORES", "zero"], ["nothing"]),
        helper.make_node("Add", ["corners", "nothing"], ["BOXES"]),
    ]
    return helper.make_graph(
        nodes,
        "red_cells",
        [helper.make_tensor_value_info("X", TensorProto.FLOAT, ("N", 3, 64, 64))],
        [
            helper.make_tensor_value_info("BOXES", TensorProto.FLOAT, ("N", 64, 4)),
            helper.make_tensor_value_info("SCORES", TensorProto.FLOAT, ("N", 64, 1)),
        ],
        [numpy_helper.from_array(np.asarray(one), name) for name, one in constants.items()],
    )
