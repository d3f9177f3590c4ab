"""LightGBM: model.txt, its text format, on the CPU.

Prediction releases the GIL and may run on several threads at once.
"""

from functools import partial
from pathlib import Path
from typing import Any

import lightgbm
from tritonclient.grpc import model_config_pb2 as pb

from backends.artefact import artefact_path, complete_config, name_file, refuse, require_cpu
from backends.seam import Device, LoadedInstances
from backends.trees.booster import BoosterInstance, booster_artefact
from repository.model import ModelConfig, ModelVersion

_FAILURES = (lightgbm.basic.LightGBMError, ValueError, TypeError, UnicodeDecodeError)


class LightGbm:
    """The backend `lightgbm`."""

    def complete(self, version: ModelVersion, default_max_batch: int) -> ModelConfig:
        """See `backends.seam.Backend`; reads the trees, predicts nothing."""
        path = artefact_path(version, "model.txt")
        booster = _opened(version, path)
        features, columns = booster.num_feature(), booster.num_model_per_iteration()
        artefact = booster_artefact(version, path.name, features, columns, pb.TYPE_FP64)
        config = complete_config(version, "lightgbm", artefact, default_max_batch)
        name_file(config, path.name)
        return config

    def load(self, version: ModelVersion, device: Device, count: int) -> LoadedInstances:
        """`count` instances that share one booster. Raises LoadFailed in LightGBM's words."""
        require_cpu(version, device, "LightGBM")
        booster = _opened(version, artefact_path(version, "model.txt"))
        predict = partial(booster.predict, num_threads=max(device.threads, 1))
        instances = [BoosterInstance(version, device, predict, _FAILURES) for _ in range(count)]
        return LoadedInstances(instances, version.config)


def _opened(version: ModelVersion, path: Path) -> Any:
    try:
        return lightgbm.Booster(model_file=str(path))
    except _FAILURES as error:
        refuse(version, f"{path.name} is not a model that LightGBM reads: {error}")
