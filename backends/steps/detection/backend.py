"""The step `detect`: a detection model's numbers in, what is where in the picture out.

BOXES FP32 [n, 4] and SCORES FP32 [n, classes], or PREDICTIONS of a YOLO; and, where a picture went
through the step `image`, its GEOMETRY FP32 [6] → DETECTION_BOXES FP32 [k, 4] (x1, y1, x2, y2),
DETECTION_SCORES FP32 [k], DETECTION_CLASSES INT32 [k], DETECTION_LABELS BYTES [k], NUM_DETECTIONS
INT32 [1] and JSON BYTES [1], `{"detections": [{"box": […], "label": …, "class": …, "score": …}]}`.
"""

import numpy as np
from tritonclient.grpc import model_config_pb2 as pb

from backends.artefact import Artefact, TensorDescription, refuse, require_cpu
from backends.seam import Device, LoadedInstances, Tensors
from backends.steps.detection.boxes import BoxSettings, Detections, detect, split_yolo
from backends.steps.labels import ABSENT, activated, documents, label_of, plain, texts
from backends.steps.step import StepInstance, complete_step, read_labels, settings_of
from repository.config.tensors import Array
from repository.model import ModelConfig, ModelVersion

BOXES, SCORES, PREDICTIONS, GEOMETRY = "BOXES", "SCORES", "PREDICTIONS", "GEOMETRY"
FOUND_BOXES, FOUND_SCORES = "DETECTION_BOXES", "DETECTION_SCORES"
FOUND_CLASSES, FOUND_LABELS = "DETECTION_CLASSES", "DETECTION_LABELS"
COUNT, JSON = "NUM_DETECTIONS", "JSON"
_YOLO = ("yolov5", "yolov8")


class Detect:
    """The backend `detect`."""

    def complete(self, version: ModelVersion, default_max_batch: int) -> ModelConfig:
        """See `backends.seam.Backend`."""
        settings = _settings(version)
        read_labels(version, settings_of(version, "detect")["labels"])
        geometry = TensorDescription(GEOMETRY, pb.TYPE_FP32, (-1, 6), optional=True)
        inputs: tuple[TensorDescription, ...]
        if settings.format in _YOLO:
            inputs = (TensorDescription(PREDICTIONS, pb.TYPE_FP32, (-1, -1, -1)), geometry)
        else:
            inputs = (
                TensorDescription(BOXES, pb.TYPE_FP32, (-1, -1, 4)),
                TensorDescription(SCORES, pb.TYPE_FP32, (-1, -1, -1)),
                geometry,
            )
        outputs = (
            TensorDescription(FOUND_BOXES, pb.TYPE_FP32, (-1, -1, 4)),
            TensorDescription(FOUND_SCORES, pb.TYPE_FP32, (-1, -1)),
            TensorDescription(FOUND_CLASSES, pb.TYPE_INT32, (-1, -1)),
            TensorDescription(FOUND_LABELS, pb.TYPE_STRING, (-1, -1)),
            TensorDescription(COUNT, pb.TYPE_INT32, (-1, 1)),
            TensorDescription(JSON, pb.TYPE_STRING, (-1, 1)),
        )
        artefact = Artefact("the backend 'detect'", inputs, outputs)
        return complete_step(version, "detect", artefact, default_max_batch)

    def load(self, version: ModelVersion, device: Device, count: int) -> LoadedInstances:
        """`count` instances, each for one thread. Raises LoadFailed."""
        require_cpu(version, device, "the backend 'detect'")
        settings = _settings(version)
        labels = read_labels(version, settings_of(version, "detect")["labels"])
        instances = [DetectInstance(version, device, settings, labels) for _ in range(count)]
        return LoadedInstances(instances, version.config)


def _settings(version: ModelVersion) -> BoxSettings:
    found = settings_of(version, "detect")
    relative = found["coordinates"] == "relative"
    if relative and found["size"] is None:
        refuse(
            version,
            "coordinates relative needs the parameter size, such as 640 or 640x480: that of the "
            "picture that the model got",
        )
    return BoxSettings(
        format=found["format"],
        relative_to=found["size"] if relative else None,
        activation=found["activation"],
        score_threshold=found["score_threshold"],
        iou_threshold=found["iou_threshold"],
        class_agnostic=found["class_agnostic"],
        max_detections=found["max_detections"],
        max_candidates=found["max_candidates"],
    )


class DetectInstance(StepInstance):
    """Finds what is in each row's picture."""

    def __init__(
        self,
        version: ModelVersion,
        device: Device,
        settings: BoxSettings,
        labels: tuple[str, ...],
    ) -> None:
        super().__init__(version, device.threads)
        self._settings = settings
        self._labels = labels

    def run(self, inputs: Tensors, wanted: tuple[str, ...]) -> Tensors:
        mappings = inputs.get(GEOMETRY)
        if mappings is not None and not (np.isfinite(mappings).all() and mappings[:, :2].all()):
            raise self.refused(f"{GEOMETRY} has factors of 0, or numbers that are none")
        rows = [
            detect(boxes, scores, None if mappings is None else mappings[number], self._settings)
            for number, (boxes, scores) in enumerate(self._pairs(inputs))
        ]
        return _outputs(rows, [self._names(row) for row in rows])

    def _pairs(self, inputs: Tensors) -> list[tuple[Array, Array]]:
        """Boxes and scores of each row."""
        if self._settings.format in _YOLO:
            found = [self._split(row) for row in inputs[PREDICTIONS]]
        else:
            boxes, scores = inputs[BOXES], inputs[SCORES]
            if boxes.shape[1] != scores.shape[1]:
                raise self.refused(
                    f"{BOXES} has {boxes.shape[1]} boxes a row, and {SCORES} is of "
                    f"{scores.shape[1]}"
                )
            scores = activated(scores, self._settings.activation)
            found = list(zip(boxes, scores, strict=True))
        classes = found[0][1].shape[-1] if found else 0
        if self._labels and classes != len(self._labels):
            raise self.refused(
                f"the scores are of {classes} classes, but there are {len(self._labels)} labels"
            )
        return found

    def _split(self, row: Array) -> tuple[Array, Array]:
        least = 5 if self._settings.format == "yolov8" else 6
        of = row.shape[0 if self._settings.format == "yolov8" else 1]
        if of < least:
            raise self.refused(
                f"{PREDICTIONS} of {self._settings.format} needs at least {least} numbers a box, "
                f"got {of}"
            )
        return split_yolo(row, self._settings)

    def _names(self, row: Detections) -> list[str]:
        return [label_of(self._labels, index) for index in row.classes.tolist()]


def _outputs(rows: list[Detections], names: list[list[str]]) -> dict[str, Array]:
    """Rows with fewer boxes than the longest end with zeros, class -1 and label ""."""
    counts = [len(row.scores) for row in rows]
    width = max(counts, default=0)
    boxes = np.zeros((len(rows), width, 4), np.float32)
    scores = np.zeros((len(rows), width), np.float32)
    classes = np.full((len(rows), width), ABSENT, np.int32)
    for number, (row, count) in enumerate(zip(rows, counts, strict=True)):
        boxes[number, :count], scores[number, :count] = row.boxes, row.scores
        classes[number, :count] = row.classes
    return {
        FOUND_BOXES: boxes,
        FOUND_SCORES: scores,
        FOUND_CLASSES: classes,
        FOUND_LABELS: texts(names, width),
        COUNT: np.array(counts, np.int32)[:, None],
        JSON: documents([_document(row, of) for row, of in zip(rows, names, strict=True)]),
    }


def _document(row: Detections, names: list[str]) -> dict[str, object]:
    return {
        "detections": [
            {
                "box": [plain(side) for side in box],
                "label": name,
                "class": index,
                "score": plain(score),
            }
            for box, name, index, score in zip(
                row.boxes, names, row.classes.tolist(), row.scores, strict=True
            )
        ]
    }
