"""Non-maximum suppression against a slow reference with torchvision's semantics."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.steps.detection.suppression import suppress
from repository.config.tensors import Array


def overlap(one: Array, other: Array) -> float:
    wide = min(one[2], other[2]) - max(one[0], other[0])
    high = min(one[3], other[3]) - max(one[1], other[1])
    shared = max(wide, np.float32(0)) * max(high, np.float32(0))
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (one, other)]
    together = areas[0] + areas[1] - shared
    return float(shared / together) if together > 0 else 0.0


def slow(boxes: Array, scores: Array, classes: Array | None, threshold: float) -> list[int]:
    """torchvision.ops.batched_nms, box by box; equal scores in order."""
    order = sorted(range(len(boxes)), key=lambda index: (-scores[index], index))
    kept: list[int] = []
    for index in order:
        rivals = [k for k in kept if classes is None or classes[k] == classes[index]]
        if all(overlap(boxes[k], boxes[index]) <= threshold for k in rivals):
            kept.append(index)
    return kept


@given(
    st.integers(0, 60),
    st.integers(0, 2**31),
    st.sampled_from([0.0, 0.3, 0.5, 1.0]),
    st.booleans(),
)
def test_the_boxes_that_stay_are_those_of_the_reference(
    count: int, seed: int, threshold: float, by_class: bool
) -> None:
    random = np.random.default_rng(seed)
    corners = random.integers(0, 12, (count, 2))
    sizes = random.integers(0, 8, (count, 2))
    boxes = np.concatenate([corners, corners + sizes], axis=1).astype(np.float32)
    scores = random.integers(0, 6, count).astype(np.float32)
    classes = random.integers(0, 3, count) if by_class else None
    found = suppress(boxes, scores, classes, threshold, count + 1)
    assert found.tolist() == slow(boxes, scores, classes, threshold)
    assert suppress(boxes, scores, classes, threshold, 3).tolist() == found.tolist()[:3]


def test_a_box_that_overlaps_by_exactly_the_threshold_stays() -> None:
    boxes = np.array([[0, 0, 2, 1], [0, 0, 1, 1]], np.float32)
    scores = np.array([0.9, 0.8], np.float32)
    assert suppress(boxes, scores, None, 0.5, 9).tolist() == [0, 1]
    assert suppress(boxes, scores, None, 0.49, 9).tolist() == [0]


@pytest.mark.parametrize("count", [0, 1])
def test_few_boxes_stay(count: int) -> None:
    boxes = np.zeros((count, 4), np.float32)
    assert len(suppress(boxes, np.ones(count, np.float32), None, 0.5, 9)) == count
