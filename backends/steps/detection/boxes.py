"""What detection models say, in one form: corners in a picture's pixels, and scores. Pure."""

from typing import NamedTuple

import numpy as np

from backends.steps.detection.suppression import suppress
from backends.steps.labels import activated
from repository.config.tensors import Array


class BoxSettings(NamedTuple):
    """Fields as the parameters of their names."""

    format: str
    relative_to: tuple[int, int] | None
    activation: str
    score_threshold: float
    iou_threshold: float
    class_agnostic: bool
    max_detections: int
    max_candidates: int


class Detections(NamedTuple):
    """Of one picture, best first: boxes FP32 [n, 4] as x1, y1, x2, y2; scores [n]; classes [n]."""

    boxes: Array
    scores: Array
    classes: Array


def split_yolo(predictions: Array, settings: BoxSettings) -> tuple[Array, Array]:
    """Boxes [n, 4] and scores [n, classes] of a combined tensor.

    `yolov8`: [4 + classes, n]; `yolov5`: [n, 5 + classes], whose fifth is how sure the model is
    that there is anything, a factor of each score.
    """
    if settings.format == "yolov8":
        rows = predictions.T
        return rows[:, :4], activated(rows[:, 4:], settings.activation)
    scores = activated(predictions[:, 5:], settings.activation)
    sure = predictions[:, 4:5]
    if settings.activation != "none":
        sure = activated(sure, "sigmoid")
    return predictions[:, :4], scores * sure


def detect(boxes: Array, scores: Array, mapping: Array | None, settings: BoxSettings) -> Detections:
    """What is in one picture. `boxes` [n, 4] in the form of `settings`, `scores` [n, classes].

    `mapping`: the GEOMETRY of the step `image`, to which the boxes are led back and cut off; None
    to leave them in the pixels that the model got. A box of several classes above the threshold
    counts once for each.
    """
    threshold = np.float32(settings.score_threshold)
    where, classes = np.nonzero(scores >= threshold)
    found = scores[where, classes]
    if len(found) > settings.max_candidates:
        best = np.sort(np.argsort(-found, kind="stable")[: settings.max_candidates])
        where, classes, found = where[best], classes[best], found[best]
    corners = _corners(boxes[where].astype(np.float32, copy=False), settings)
    whole = np.isfinite(corners).all(axis=1)
    if not whole.all():
        corners, classes, found = corners[whole], classes[whole], found[whole]
    by_class = None if settings.class_agnostic else classes
    kept = suppress(corners, found, by_class, settings.iou_threshold, settings.max_detections)
    corners = corners[kept]
    if mapping is not None:
        corners = _in_source(corners, mapping)
    return Detections(corners, found[kept], classes[kept])


def _corners(boxes: Array, settings: BoxSettings) -> Array:
    if settings.format != "xyxy":
        half = boxes[:, 2:] / np.float32(2)
        boxes = np.concatenate([boxes[:, :2] - half, boxes[:, :2] + half], axis=1)
    if settings.relative_to is not None:
        boxes = boxes * np.array(settings.relative_to * 2, np.float32)
    return boxes


def _in_source(boxes: Array, mapping: Array) -> Array:
    factors, shifts, size = mapping[[0, 1, 0, 1]], mapping[[2, 3, 2, 3]], mapping[[4, 5, 4, 5]]
    found: Array = ((boxes - shifts) / factors).clip(0, size)
    return found
