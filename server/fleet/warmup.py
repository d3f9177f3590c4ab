"""Run a model's `model_warmup` samples on one instance, before it answers anybody.

Called by `server.fleet.loading` on a loading thread. Each sample becomes `batch_size` requests of
one row, executed together, `count` times.
"""

import time
from collections.abc import Iterator, Sequence
from math import prod
from pathlib import Path

import numpy as np
from tritonclient.grpc import model_config_pb2 as pb

from backends.errors import BackendError, LoadFailed
from backends.response_sender import respond
from backends.seam import Batch, Instance, Result
from repository.config.tensors import BY_CONFIG, Array
from repository.files.plain_files import open_plain
from repository.model import ModelVersion
from schedulers.request import InferRequest
from server.admit import bytes_array, tensor_from_bytes
from server.errors import InvalidRequest
from server.signature import Signature, TensorSpec

MAX_SAMPLE_BYTES = 1 << 30
_OBJECT_BYTES = 64


def warm(version: ModelVersion, signature: Signature, instance: Instance) -> None:
    """Execute every warmup sample of `version.config`; blocks.

    Raises LoadFailed naming the sample and what is wrong with it, or how the model failed on it.
    """
    for sample in version.config.model_warmup:
        where = f"model '{version.name}' version {version.number}: warmup sample '{sample.name}'"
        batch = _batch(version, signature, sample, where)
        for _ in range(max(1, sample.count)):
            for error in _errors(instance, batch):
                raise LoadFailed(f"{where} failed: {error}") from error


def _errors(instance: Instance, batch: Batch) -> Iterator[Exception]:
    try:
        results = _results(instance, batch)
    except BackendError as error:
        yield error
        return
    yield from (result for result in results if isinstance(result, Exception))


def _results(instance: Instance, batch: Batch) -> Sequence[Result | None]:
    """A decoupled model has answered when the last of its responses has come."""
    if getattr(instance, "streams", False):
        return [part.result for parts in respond(instance, batch) for part in parts]
    return instance.execute(batch).results


def _batch(
    version: ModelVersion, signature: Signature, sample: pb.ModelWarmup, where: str
) -> Batch:
    size = max(1, sample.batch_size)
    if size > max(1, signature.max_batch):
        raise LoadFailed(
            f"{where} has batch_size {size}, more than max_batch_size {signature.max_batch} allows"
        )
    inputs = {
        name: _tensor(version, signature, name, given, where)
        for name, given in sample.inputs.items()
    }
    missing = signature.required - inputs.keys()
    if missing:
        raise LoadFailed(f"{where} lacks required input(s) {sorted(missing)}")
    now_ns = time.monotonic_ns()
    row_bytes = sum(array.nbytes for array in inputs.values())
    if size * row_bytes > MAX_SAMPLE_BYTES:
        raise LoadFailed(
            f"{where} has batch_size {size} with rows of {row_bytes} bytes; together they may "
            f"have {MAX_SAMPLE_BYTES}"
        )
    members = [
        InferRequest(version.name, version.number, inputs, 1, None, now_ns, id="warmup")
        for _ in range(size)
    ]
    return Batch(members, [1] * size, signature.max_batch > 0)


def _tensor(
    version: ModelVersion,
    signature: Signature,
    name: str,
    given: pb.ModelWarmup.Input,
    where: str,
) -> Array:
    """One row of the input `name`, with its leading dimension of 1 when the model batches."""
    spec = signature.inputs.get(name)
    if spec is None:
        raise LoadFailed(f"{where} has input '{name}'; the model has {list(signature.inputs)}")
    written = BY_CONFIG.get(given.data_type)
    if written is None or written.name != spec.datatype:
        kind = written.name if written else "no data_type"
        raise LoadFailed(f"{where}: input '{name}' is {kind}, the model takes {spec.datatype}")
    dims = tuple(given.dims)
    fits = len(dims) == len(spec.dims) and all(
        got >= 0 and want in (-1, got) for want, got in zip(spec.dims, dims, strict=True)
    )
    if not fits or prod(dims) * _element_bytes(spec) > MAX_SAMPLE_BYTES:
        raise LoadFailed(
            f"{where}: input '{name}' has dims {list(dims)}, the model takes {list(spec.dims)} "
            f"(and a sample at most {MAX_SAMPLE_BYTES} bytes)"
        )
    shape = (1, *dims) if signature.max_batch else dims
    if given.WhichOneof("input_data_type") == "input_data_file":
        data = _read(version.folder / "warmup", given.input_data_file, where)
        try:
            return tensor_from_bytes(signature, "", spec, shape, data)
        except InvalidRequest as error:
            raise LoadFailed(f"{where}: file '{given.input_data_file}': {error}") from error
    return _made_up(spec.dtype, shape, bool(given.random_data))


def _element_bytes(spec: TensorSpec) -> int:
    """Bytes an element takes while a sample is made: random numbers are drawn 8 bytes wide, and
    one of BYTES is an object."""
    return max(8, spec.itemsize) if spec.itemsize else _OBJECT_BYTES


def _read(folder: Path, name: str, where: str) -> bytes:
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()):
        raise LoadFailed(f"{where}: input_data_file '{name}' is outside the model's warmup folder")
    try:
        with open(open_plain(path), "rb") as file:
            data = file.read(MAX_SAMPLE_BYTES + 1)
        if len(data) > MAX_SAMPLE_BYTES:
            raise LoadFailed(f"{where}: input_data_file '{name}' exceeds {MAX_SAMPLE_BYTES} bytes")
        return data
    except OSError as error:
        raise LoadFailed(
            f"{where}: cannot read input_data_file '{name}' from the model's warmup folder: "
            f"{error.strerror}"
        ) from error


def _made_up(dtype: np.dtype[np.generic], shape: tuple[int, ...], at_random: bool) -> Array:
    """Zeros, or the same random numbers at every load (integers 0 to 99, floats 0 to 1)."""
    count = prod(shape)
    if not at_random:
        return bytes_array([b""] * count, shape) if dtype.hasobject else np.zeros(shape, dtype)
    random = np.random.default_rng(0)
    if dtype.hasobject:
        return bytes_array([b"%d" % number for number in random.integers(0, 100, count)], shape)
    if dtype.kind in "iub":
        return random.integers(0, 2 if dtype.kind == "b" else 100, shape).astype(dtype)
    return random.random(shape).astype(dtype)
