"""The step `detect`: formats of models, thresholds, and the way back to the picture."""

from pathlib import Path

import numpy as np
import orjson
import pytest

from backends.errors import LoadFailed, ModelError
from backends.registry import backend_of
from backends.steps.pictures.geometry import place
from repository.config.tensors import Array
from support.pictures import answered, ask, step, step_config
from support.runtime import make_version

BOXES = np.array([[[10, 20, 30, 60], [11, 21, 31, 61], [100, 100, 140, 120]]], np.float32)
SCORES = np.array([[[0.9, 0.1], [0.8, 0.7], [0.2, 0.6]]], np.float32)
LABELS = {"labels.txt": b"cat\ndog\n"}
PLAIN = np.array([[1, 1, 0, 0, 200, 200]], np.float32)


def centred(corners: Array) -> Array:
    middle = (corners[..., :2] + corners[..., 2:]) / 2
    return np.concatenate([middle, corners[..., 2:] - corners[..., :2]], axis=-1)


def test_the_best_box_of_each_class_stays_and_is_named(tmp_path: Path) -> None:
    found = answered(step(tmp_path, "detect", files=LABELS), BOXES=BOXES, SCORES=SCORES)
    assert found["DETECTION_LABELS"].tolist() == [[b"cat", b"dog", b"dog"]]
    assert found["DETECTION_CLASSES"].tolist() == [[0, 1, 1]]
    np.testing.assert_allclose(found["DETECTION_SCORES"], [[0.9, 0.7, 0.6]])
    np.testing.assert_array_equal(found["DETECTION_BOXES"][0], BOXES[0])
    assert found["NUM_DETECTIONS"].tolist() == [[3]]
    (first, *_) = orjson.loads(found["JSON"][0, 0])["detections"]
    assert first == {"box": [10, 20, 30, 60], "label": "cat", "class": 0, "score": 0.9}


def test_class_agnostic_suppression_keeps_one_of_two_that_overlap(tmp_path: Path) -> None:
    instance = step(tmp_path, "detect", class_agnostic="true")
    found = answered(instance, BOXES=BOXES, SCORES=SCORES)
    assert found["DETECTION_CLASSES"].tolist() == [[0, 1]]


def test_thresholds_and_bounds_are_kept(tmp_path: Path) -> None:
    high = answered(step(tmp_path, "detect", score_threshold="0.75"), BOXES=BOXES, SCORES=SCORES)
    assert high["DETECTION_CLASSES"].tolist() == [[0]]
    few = step(tmp_path / "few", "detect", max_detections="1")
    assert answered(few, BOXES=BOXES, SCORES=SCORES)["NUM_DETECTIONS"].tolist() == [[1]]
    best = step(tmp_path / "best", "detect", max_candidates="1", score_threshold="0")
    assert answered(best, BOXES=BOXES, SCORES=SCORES)["DETECTION_SCORES"].tolist() == [
        [pytest.approx(0.9)]
    ]


def test_rows_with_fewer_boxes_are_filled_up(tmp_path: Path) -> None:
    scores = np.concatenate([SCORES, np.zeros_like(SCORES)])
    boxes = np.concatenate([BOXES, BOXES])
    found = answered(step(tmp_path, "detect"), BOXES=boxes, SCORES=scores)
    assert found["NUM_DETECTIONS"].tolist() == [[3], [0]]
    assert found["DETECTION_CLASSES"][1].tolist() == [-1, -1, -1]
    assert found["DETECTION_LABELS"][1].tolist() == [b"", b"", b""]
    assert orjson.loads(found["JSON"][1, 0]) == {"detections": []}


@pytest.mark.parametrize("format", ["cxcywh", "yolov8", "yolov5"])
def test_every_format_says_the_same_boxes(format: str, tmp_path: Path) -> None:
    centres = centred(BOXES)
    inputs = {"BOXES": centres, "SCORES": SCORES}
    if format == "yolov8":
        inputs = {"PREDICTIONS": np.concatenate([centres, SCORES], axis=-1).transpose(0, 2, 1)}
    elif format == "yolov5":
        sure = np.full((1, 3, 1), 0.5, np.float32)
        inputs = {"PREDICTIONS": np.concatenate([centres, sure, SCORES * 2], axis=-1)}
    found = answered(step(tmp_path, "detect", format=format), **inputs)
    np.testing.assert_allclose(found["DETECTION_BOXES"][0], BOXES[0], atol=1e-4)
    np.testing.assert_allclose(found["DETECTION_SCORES"], [[0.9, 0.7, 0.6]], atol=1e-6)


@pytest.mark.parametrize("resize", ["letterbox", "stretch", "crop"])
def test_boxes_are_led_back_to_the_pixels_of_the_picture(resize: str, tmp_path: Path) -> None:
    mapping = np.array(place((1280, 720), (640, 640), resize, None).mapping(), np.float32)
    truth = np.array([400, 100, 800, 700], np.float32)
    seen = truth * mapping[[0, 1, 0, 1]] + mapping[[2, 3, 2, 3]]
    relative = centred(seen / 640)[None, None]
    instance = step(tmp_path, "detect", format="cxcywh", coordinates="relative", size="640")
    one = np.ones((1, 1, 1), np.float32)
    found = answered(instance, BOXES=relative, SCORES=one, GEOMETRY=mapping[None])
    np.testing.assert_allclose(found["DETECTION_BOXES"][0, 0], truth, atol=0.01)


def test_boxes_are_cut_off_at_the_edges_of_the_picture(tmp_path: Path) -> None:
    mapping = np.array([[1, 1, 0, 0, 50, 40]], np.float32)
    boxes = np.array([[[-9, -9, 99, 99]]], np.float32)
    one = np.ones((1, 1, 1), np.float32)
    found = answered(step(tmp_path, "detect"), BOXES=boxes, SCORES=one, GEOMETRY=mapping)
    assert found["DETECTION_BOXES"][0, 0].tolist() == [0, 0, 50, 40]


def test_numbers_that_are_none_make_no_detection(tmp_path: Path) -> None:
    boxes, scores = BOXES.copy(), SCORES.copy()
    boxes[0, 0, 0], scores[0, 1, :] = np.nan, np.nan
    found = answered(step(tmp_path, "detect"), BOXES=boxes, SCORES=scores)
    assert found["NUM_DETECTIONS"].tolist() == [[1]]


@pytest.mark.parametrize(
    ("parameters", "inputs", "text"),
    [
        ({}, {"BOXES": BOXES, "SCORES": SCORES[:, :2]}, "BOXES has 3 boxes a row, and SCORES is"),
        ({}, {"BOXES": BOXES, "SCORES": SCORES[:, :, :1]}, "of 1 classes, but there are 2 labels"),
        ({"format": "yolov8"}, {"PREDICTIONS": BOXES}, "needs at least 5 numbers a box, got 3"),
        (
            {},
            {"BOXES": BOXES, "SCORES": SCORES, "GEOMETRY": np.zeros((1, 6), np.float32)},
            "GEOMETRY has factors of 0",
        ),
        ({}, {"BOXES": BOXES, "SCORES": SCORES.repeat(2, 0)}, "but BOXES has 1, SCORES has 2"),
        (
            {},
            {"BOXES": BOXES.repeat(2, 0), "SCORES": SCORES.repeat(2, 0), "GEOMETRY": PLAIN},
            "but BOXES has 2, SCORES has 2, GEOMETRY has 1",
        ),
    ],
)
def test_tensors_that_do_not_fit_are_refused(
    parameters: dict[str, str], inputs: dict[str, Array], text: str, tmp_path: Path
) -> None:
    error = ask(step(tmp_path, "detect", files=LABELS, **parameters), **inputs)
    assert isinstance(error, ModelError)
    assert text in str(error)


def test_relative_coordinates_need_a_size(tmp_path: Path) -> None:
    version = make_version(tmp_path, step_config("detect", {"coordinates": "relative"}))
    with pytest.raises(LoadFailed, match="coordinates relative needs the parameter size"):
        backend_of("detect").complete(version, 4)
