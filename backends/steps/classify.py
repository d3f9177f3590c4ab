"""The step `classify`: a model's numbers in, the best classes by name out.

LOGITS FP32 [classes] → LABELS BYTES, SCORES FP32 and INDICES INT32, each [k], best first,
and JSON BYTES [1], `{"labels": [{"label": …, "index": …, "score": …}, …]}`.
"""

from typing import NamedTuple

import numpy as np
from tritonclient.grpc import model_config_pb2 as pb

from backends.artefact import Artefact, TensorDescription, refuse, require_cpu
from backends.seam import Device, LoadedInstances, Tensors
from backends.steps.labels import ABSENT, activated, documents, label_of, plain, texts
from backends.steps.step import StepInstance, complete_step, read_labels, settings_of
from repository.config.tensors import Array
from repository.model import ModelConfig, ModelVersion

LOGITS, LABELS, SCORES, INDICES, JSON = (
    "LOGITS",
    "LABELS",
    "SCORES",
    "INDICES",
    "JSON",
)
_TYPES = (pb.TYPE_FP32, pb.TYPE_FP16, pb.TYPE_FP64)


class ClassSettings(NamedTuple):
    """`classes`: how many the model tells apart, 0 where that is not known. `top_k`: at most so
    many. `labels`: none, or one for each class."""

    activation: str
    top_k: int
    threshold: float | None
    labels: tuple[str, ...]
    classes: int


class Classify:
    """The backend `classify`."""

    def complete(self, version: ModelVersion, default_max_batch: int) -> ModelConfig:
        """See `backends.seam.Backend`. The classes are counted by dims of LOGITS or by labels."""
        settings = _settings(version)
        count = -1 if settings.threshold is not None or not settings.classes else settings.top_k
        artefact = Artefact(
            "the backend 'classify'",
            (TensorDescription(LOGITS, _data_type(version), (-1, settings.classes or -1)),),
            (
                TensorDescription(LABELS, pb.TYPE_STRING, (-1, count)),
                TensorDescription(SCORES, pb.TYPE_FP32, (-1, count)),
                TensorDescription(INDICES, pb.TYPE_INT32, (-1, count)),
                TensorDescription(JSON, pb.TYPE_STRING, (-1, 1)),
            ),
        )
        return complete_step(version, "classify", artefact, default_max_batch)

    def load(self, version: ModelVersion, device: Device, count: int) -> LoadedInstances:
        """`count` instances, each for one thread. Raises LoadFailed."""
        require_cpu(version, device, "the backend 'classify'")
        settings = _settings(version)
        instances = [ClassifyInstance(version, device, settings) for _ in range(count)]
        return LoadedInstances(instances, version.config)


def _settings(version: ModelVersion) -> ClassSettings:
    found = settings_of(version, "classify")
    labels = read_labels(version, found["labels"])
    written = next((tensor for tensor in version.config.input if tensor.name == LOGITS), None)
    dims = tuple(written.dims) if written is not None else ()
    classes = max(dims[-1], 0) if dims else 0
    if labels and classes and len(labels) != classes:
        refuse(
            version,
            f"there are {len(labels)} labels, but {LOGITS} has {classes} classes; one line of the "
            "label file is needed for each class, also for a background",
        )
    classes = classes or len(labels)
    top_k = min(found["top_k"], classes) if classes else found["top_k"]
    return ClassSettings(found["activation"], top_k, found["threshold"], labels, classes)


def _data_type(version: ModelVersion) -> int:
    """That of LOGITS, where the config has one that is taken."""
    for tensor in version.config.input:
        if tensor.name == LOGITS and tensor.data_type in _TYPES:
            return int(tensor.data_type)
    return int(pb.TYPE_FP32)


class ClassifyInstance(StepInstance):
    """Sorts the classes of each row."""

    def __init__(self, version: ModelVersion, device: Device, settings: ClassSettings) -> None:
        super().__init__(version, device.threads)
        self._settings = settings

    def run(self, inputs: Tensors, wanted: tuple[str, ...]) -> Tensors:
        _, top_k, threshold, labels, _ = self._settings
        scores = activated(inputs[LOGITS], self._settings.activation)
        if labels and scores.shape[-1] != len(labels):
            raise self.refused(
                f"{LOGITS} has {scores.shape[-1]} classes, but there are {len(labels)} labels"
            )
        best = best_classes(scores, top_k)
        found = np.take_along_axis(scores, best, axis=-1)
        if threshold is not None:
            best = np.where(found >= np.float32(threshold), best, ABSENT)
            width = int((best != ABSENT).sum(axis=-1).max(initial=0))
            best, found = best[:, :width], np.where(best != ABSENT, found, 0)[:, :width]
        outputs: dict[str, Array] = {
            SCORES: np.ascontiguousarray(found, np.float32),
            INDICES: np.ascontiguousarray(best, np.int32),
        }
        if LABELS in wanted or JSON in wanted:
            names = [[label_of(labels, index) for index in row] for row in best.tolist()]
            outputs[LABELS] = texts(names, best.shape[-1])
            outputs[JSON] = documents(
                [_document(*row) for row in zip(names, best.tolist(), found, strict=True)]
            )
        return outputs


def best_classes(scores: Array, count: int) -> Array:
    """Indices [rows, count] of each row's best, best first, equal ones by index, NaN last."""
    keys = np.where(np.isnan(scores), -np.inf, scores)
    order: Array = np.argsort(-keys, axis=-1, kind="stable")[:, :count]
    return order


def _document(names: list[str], indices: list[int], scores: Array) -> dict[str, object]:
    return {
        "labels": [
            {"label": name, "index": index, "score": plain(score)}
            for name, index, score in zip(names, indices, scores, strict=True)
            if index != ABSENT
        ]
    }
