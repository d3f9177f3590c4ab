"""Prepare a network and write it in int8, by onnxruntime."""

import contextlib
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import onnx
from onnxruntime.quantization import (
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)
from onnxruntime.quantization.registry import IntegerOpsRegistry
from onnxruntime.quantization.shape_inference import quant_pre_process

from control.jobs.specs.quantise import QuantiseSpec
from jobs.tools.networks.files import first_line
from jobs.tools.quantise.calibration import METHODS
from jobs.tools.quantise.layers import name_nodes
from jobs.tools.work import refuse

SLOW_WHEN_DYNAMIC = frozenset({"Conv"})
"""ConvInteger has no fast kernel."""


class Quantiser(NamedTuple):
    """A way to quantise a prepared network; `ranges` is None where they are found at each call."""

    prepared: Path
    spec: QuantiseSpec
    reduce_range: bool
    ranges: Path | None

    def write(
        self, path: Path, excluded: Sequence[str] = (), only: Sequence[str] | None = None
    ) -> Path:
        """Write the network in int8 but for the nodes excluded, or only these nodes; the path."""
        left = [*self.spec.exclude, *excluded]
        try:
            if self.ranges is None:
                self._dynamic(path, left, only)
            else:
                self._static(path, left, only, self.ranges)
        except Exception as error:  # noqa: BLE001 - the quantiser raises what a network provokes
            refuse(f"onnxruntime cannot quantise the network: {first_line(error)}")
        return path

    def _dynamic(self, path: Path, left: list[str], only: Sequence[str] | None) -> None:
        quantize_dynamic(
            self.prepared,
            path,
            op_types_to_quantize=[
                one for one in IntegerOpsRegistry if one not in SLOW_WHEN_DYNAMIC
            ],
            per_channel=self.spec.per_channel,
            reduce_range=self.reduce_range,
            weight_type=QuantType.QInt8,
            nodes_to_quantize=list(only or ()),
            nodes_to_exclude=left,
        )

    def _static(self, path: Path, left: list[str], only: Sequence[str] | None, at: Path) -> None:
        quantize_static(
            self.prepared,
            path,
            quant_format=QuantFormat.QDQ,
            per_channel=self.spec.per_channel,
            reduce_range=self.reduce_range,
            # s8 activations have no fast kernel: ResNet-18 took 105 ms instead of 39.
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            nodes_to_quantize=list(only or ()),
            nodes_to_exclude=left,
            calibrate_method=METHODS[self.spec.calibration],
            calibration_cache_path=at,
        )


def prepare_network(source: Path, prepared: Path) -> Path:
    """Infer shapes and fold constants, as the quantiser wants it, and give each node a name of its
    own, by which it is left out; the path of the result.

    Symbolic inference does not know every operator; without it less is quantised, and nothing is
    wrong. Refuses a network that cannot be read this way either.
    """
    logging.getLogger().setLevel(logging.ERROR)
    source, prepared = source.resolve(), prepared.resolve()
    try:
        # Inference that is not complete leaves a file in the current folder.
        with contextlib.chdir(prepared.parent):
            quant_pre_process(str(source), str(prepared))
    except Exception:  # noqa: BLE001 - as above
        _prepare_without_symbols(source, prepared)
    network = onnx.load(prepared)
    if name_nodes(network):
        onnx.save(network, prepared)
    return prepared


def _prepare_without_symbols(source: Path, prepared: Path) -> None:
    try:
        quant_pre_process(str(source), str(prepared), skip_symbolic_shape=True)
    except Exception as error:  # noqa: BLE001 - as above
        refuse(f"the shapes of the network cannot be inferred: {first_line(error)}")
