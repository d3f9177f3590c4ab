"""A small ensemble that names the colour of a picture, and its steps' models."""

from pathlib import Path

from onnx import TensorProto, helper

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
