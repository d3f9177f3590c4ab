"""What boosters have in common: one table of numbers in, one of predictions out.

Their files name no tensors. The names are the config's where it has one input and one output, else
`input__0` and `output__0`, as in Triton's FIL backend.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from tritonclient.grpc import model_config_pb2 as pb

from backends.artefact import Artefact, TensorDescription
from backends.errors import ExecutionFailed
from backends.seam import Device, Tensors
from backends.stacked import StackedInstance
from repository.config.tensors import Array
from repository.model import ModelVersion

Predict = Callable[[Array], Any]
"""Rows of features, [rows, features] → predictions, [rows] or [rows, columns]."""


def booster_artefact(
    version: ModelVersion, file: str, features: int, columns: int, data_type: int
) -> Artefact:
    """A booster as an artefact. `columns`: of its prediction; `data_type`: of its output."""
    config = version.config
    names = [
        tensors[0].name if len(tensors) == 1 else default
        for tensors, default in ((config.input, "input__0"), (config.output, "output__0"))
    ]
    rows = TensorDescription(names[0], pb.TYPE_FP32, (-1, features))
    return Artefact(file, (rows,), (TensorDescription(names[1], data_type, (-1, columns)),))


class BoosterInstance(StackedInstance):
    """One thread's way to a booster that the instances share. NaN is a missing value."""

    def __init__(
        self,
        version: ModelVersion,
        device: Device,
        predict: Predict,
        errors: tuple[type[Exception], ...],
    ) -> None:
        """`predict` may be called by several threads at once; it raises `errors`."""
        super().__init__(version, "cpu", device.threads)
        self._predict = predict
        self._errors = errors

    def run(self, inputs: Tensors, outputs: tuple[str, ...]) -> Mapping[str, Array]:
        (features,) = inputs.values()
        try:
            found = np.asarray(self._predict(features))
        except self._errors as error:
            raise ExecutionFailed(f"{self._where}: {error}") from error
        (name,) = self._all
        table = found.reshape(len(features), -1)
        return {name: table.astype(self._dtypes[name], copy=False)}
