"""Non-maximum suppression, as torchvision does it: a box goes where a better one of its class
overlaps it by more than a threshold. Pure.
"""

import numpy as np

from repository.config.tensors import Array


def suppress(
    boxes: Array, scores: Array, classes: Array | None, iou_threshold: float, most: int
) -> Array:
    """Indices of the boxes that stay, best first, at most `most`.

    `boxes`: FP32 [n, 4], corners as x1, y1, x2, y2; `scores`: [n], equal ones in order; `classes`:
    [n], or None where boxes of all classes stand against each other.
    """
    order = np.argsort(-scores, kind="stable")
    boxes = boxes[order]
    classes = None if classes is None else classes[order]
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    alive = np.arange(len(boxes))
    limit = np.float64(iou_threshold)  # FP32 against it are compared as FP64, as by torchvision
    kept: list[int] = []
    while len(alive) and len(kept) < most:
        best, rest = alive[0], alive[1:]
        kept.append(best)
        near = _overlap(boxes[best], areas[best], boxes[rest], areas[rest]) > limit
        if classes is not None:
            near &= classes[rest] == classes[best]
        alive = rest[~near]
    chosen: Array = order[kept]
    return chosen


def _overlap(box: Array, area: Array, others: Array, areas: Array) -> Array:
    """Intersection over union; 0 of two boxes without an area."""
    wide = np.minimum(box[2], others[:, 2]) - np.maximum(box[0], others[:, 0])
    high = np.minimum(box[3], others[:, 3]) - np.maximum(box[1], others[:, 1])
    shared = np.maximum(wide, 0) * np.maximum(high, 0)
    together = area + areas - shared
    found: Array = np.divide(shared, together, out=np.zeros_like(shared), where=together > 0)
    return found
