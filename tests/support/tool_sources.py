"""Source folders for tools: networks of several shapes, whose heads are fitted to real digits."""

from pathlib import Path
from typing import Any

import numpy as np

from examples.digits.images import split

DIGITS_CONFIG = """\
name: "digits"
backend: "onnxruntime"
max_batch_size: 64
input { name: "IMAGE" data_type: TYPE_FP32 dims: [ 1, 8, 8 ] }
output { name: "LOGITS" data_type: TYPE_FP32 dims: [ 10 ] label_filename: "labels.txt" }
dynamic_batching { }
"""
DIGITS_FILE = Path(__file__).parents[2] / "server/cli/demo_files/models/digits/2/model.onnx"


def digits_source(folder: Path) -> Path:
    """The digits network that `modelyard demo` serves, as the source of a task."""
    folder.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(DIGITS_FILE.read_bytes())
    (folder / "config.pbtxt").write_text(DIGITS_CONFIG)
    return folder


def digits_rows(count: int = 700) -> dict[str, Any]:
    """Pictures of digits and what they show."""
    written = split()
    images = np.concatenate([written.held_out.images, written.training.images])[:count]
    labels = np.concatenate([written.held_out.labels, written.training.labels])[:count]
    return {"IMAGE": images, "labels": labels}
