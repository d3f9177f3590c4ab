"""ncnn: model.param beside model.bin, on the CPU, in a worker process.

The format records the names of inputs and outputs and no shapes, so config.pbtxt states dims. It
has no batch dimension: a network sees one row at a time, and rows are run one after another. ncnn
crashes on some inputs instead of raising, hence the process of its own.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from tritonclient.grpc import model_config_pb2 as pb

from backends.artefact import (
    Artefact,
    TensorDescription,
    artefact_path,
    complete_config,
    inside,
    name_file,
    refuse,
    require_cpu,
)
from backends.errors import ExecutionFailed
from backends.seam import Device, LoadedInstances, Tensors
from backends.stacked import StackedInstance
from repository.config.tensors import Array
from repository.model import ModelConfig, ModelVersion

MOST_DIMS = 4
"""Of a row: [w], [h,w], [c,h,w] or [c,d,h,w]."""


class Ncnn:
    """The backend `ncnn`."""

    def complete(self, version: ModelVersion, default_max_batch: int) -> ModelConfig:
        """See `backends.seam.Backend`; reads the graph's text, runs nothing."""
        graph, weights = _files(version)
        network = _loaded(version, graph, weights, 1)
        artefact = Artefact(
            graph.name,
            tuple(TensorDescription(name, pb.TYPE_FP32, None) for name in network.input_names()),
            tuple(TensorDescription(name, pb.TYPE_FP32, None) for name in network.output_names()),
        )
        config = complete_config(version, "ncnn", artefact, default_max_batch)
        for tensor in config.input:
            shape = tensor.reshape.shape if tensor.HasField("reshape") else tensor.dims
            rank = len(shape) - _extra_dims(config.max_batch_size, shape)
            if rank > MOST_DIMS:
                refuse(
                    version,
                    f"input '{tensor.name}' has {rank} dims, and ncnn takes at most {MOST_DIMS}",
                )
        name_file(config, graph.name)
        return config

    def load(self, version: ModelVersion, device: Device, count: int) -> LoadedInstances:
        """`count` instances of one network. Raises LoadFailed; ncnn gives its reasons on stderr."""
        require_cpu(version, device, "ncnn")
        network = _loaded(version, *_files(version), max(device.threads, 1))
        instances = [NcnnInstance(version, device, network) for _ in range(count)]
        return LoadedInstances(instances, version.config)


def _extra_dims(max_batch_size: int, shape: Any) -> int:
    """Dimensions of a config's shape that ncnn does not see: a leading 1 where nothing batches."""
    return 1 if not max_batch_size and len(shape) > 1 and shape[0] == 1 else 0


def _files(version: ModelVersion) -> tuple[Path, Path]:
    graph = artefact_path(version, "model.param")
    name = graph.with_suffix(".bin").name
    weights = inside(version, name, f"the weights of {graph.name},")
    if not weights.is_file():
        refuse(version, f"{graph.name} needs its weights in '{name}', which is not in its folder")
    return graph, weights


def _loaded(version: ModelVersion, graph: Path, weights: Path, threads: int) -> Any:
    import ncnn

    network = ncnn.Net()
    network.opt.num_threads = threads
    # Half precision is its default; answers would differ from the model that was trained.
    network.opt.use_fp16_packed = False
    network.opt.use_fp16_storage = False
    network.opt.use_fp16_arithmetic = False
    network.opt.use_bf16_storage = False
    network.opt.use_vulkan_compute = False
    for file, read in ((graph, network.load_param), (weights, network.load_model)):
        try:
            status = read(str(file))
        except (RuntimeError, UnicodeDecodeError) as error:
            refuse(version, f"ncnn cannot load {file.name}: {error}")
        if status:  # it returns a number; what it has to say goes to stderr
            refuse(
                version,
                f"ncnn cannot load {file.name} (status {status}); the two files must be those "
                "that pnnx or an ncnn converter wrote together",
            )
    if not network.output_names():
        refuse(version, f"{graph.name} has no output: no layer's result is left unused")
    return network


class NcnnInstance(StackedInstance):
    """An extractor for each row, on the network that the instances share."""

    def __init__(self, version: ModelVersion, device: Device, network: Any) -> None:
        super().__init__(version, "cpu", device.threads)
        self._network = network
        config = version.config
        self._batched = config.max_batch_size > 0
        self._stacked = self._batched or any(
            _extra_dims(0, tensor.reshape.shape or tensor.dims) for tensor in config.input
        )

    def run(self, inputs: Tensors, outputs: tuple[str, ...]) -> Mapping[str, Array]:
        if not self._stacked:
            return self._run_row(inputs, outputs)
        rows = {len(array) for array in inputs.values()}
        if len(rows) != 1:
            raise ExecutionFailed(f"{self._where}: ncnn: inputs differ in their first dimension")
        found = [
            self._run_row({name: array[row] for name, array in inputs.items()}, outputs)
            for row in range(rows.pop())
        ]
        return {name: np.stack([row[name] for row in found]) for name in outputs}

    def _run_row(self, inputs: Tensors, outputs: tuple[str, ...]) -> dict[str, Array]:
        import ncnn

        found = {}
        try:
            with self._network.create_extractor() as extractor:
                for name, array in inputs.items():
                    # A layer that works in place would write into memory that is not ncnn's, and
                    # free it: the clone is its own.
                    value = ncnn.Mat(np.ascontiguousarray(array)).clone()
                    self._check(extractor.input(name, value), f"input '{name}'")
                for name in outputs:
                    status, value = extractor.extract(name)
                    self._check(status, f"output '{name}'")
                    found[name] = np.array(value)
        except (RuntimeError, ValueError) as error:
            raise ExecutionFailed(f"{self._where}: ncnn: {error}") from error
        return found

    def _check(self, status: int, what: str) -> None:
        if status:
            raise ExecutionFailed(
                f"{self._where}: ncnn refused {what} (status {status}); the shapes of the request "
                "may not suit the network"
            )
