"""Rules for ragged batches: `allow_ragged_batch`, `batch_input` and `batch_output`. Pure.

Source of the texts: Triton's `ValidateBatchIO` (`model_config_utils.cc`) and its ONNX Runtime
backend.
"""

from collections.abc import Iterator
from typing import Any

from repository.config.finding_report import FindingReport
from repository.model import ModelConfig

_CODE = "E124"
_DATA_TYPES = (11, 8)  # TYPE_FP32, TYPE_INT32


def _ragged_inputs(config: ModelConfig, report: FindingReport) -> None:
    for index, tensor in enumerate(config.input):
        if tensor.allow_ragged_batch and tensor.optional and config.backend in _FLATTENING:
            path = f"input[{index}].optional"
            problem = (
                f"unable to load model '{config.name}', configuration expects model provides input "
                f"with shape [-1] for ragged input '{tensor.name}', which is not supported for "
                "optional input; leave one of the two out"
            )
            report.add(path, _CODE, f"{path}: {problem}")


_FLATTENING = ("onnxruntime", "pytorch")
"""Backends that string ragged inputs together; the others get each request's by themselves."""


def _without_batches(config: ModelConfig, report: FindingReport) -> None:
    if config.backend in ("", "python", "identity", "llm", *_FLATTENING):
        return
    for path in ("batch_input", "batch_output"):
        if len(getattr(config, path)):
            problem = f"is not offered with the backend '{config.backend}'"
            accepted = "use onnxruntime or pytorch, or let the model compute it from its inputs"
            report.add(path, _CODE, f"{path} {problem}; {accepted}")


def _batch_inputs(config: ModelConfig, report: FindingReport) -> None:
    taken = {tensor.name for tensor in config.input}
    for index, row in enumerate(config.batch_input):
        path = f"batch_input[{index}]"
        _kind(path, "input", row, config, report)
        absent = not row.data_type and not report.complete
        if not absent and row.data_type not in _DATA_TYPES:
            problem = "batch input data type must be TYPE_INT32 or TYPE_FP32"
            report.add(f"{path}.data_type", _CODE, f"{path}: {problem}")
        if not row.target_name:
            report.add(path, _CODE, f"{path} has no target_name; name the model's input it fills")
        for place, name in enumerate(row.target_name):
            if name in taken:
                where = f"{path}.target_name[{place}]"
                problem = "is an input already; requests do not carry what batch_input fills"
                report.add(where, _CODE, f"{where} '{name}' {problem}")
            taken.add(name)


def _batch_outputs(config: ModelConfig, report: FindingReport) -> None:
    outputs = {tensor.name: tensor for tensor in config.output}
    taken: set[str] = set()
    for index, row in enumerate(config.batch_output):
        path = f"batch_output[{index}]"
        _kind(path, "output", row, config, report)
        if config.backend == "python":
            problem = "has no meaning for a python model, which answers each request by itself"
            report.add(path, _CODE, f"{path} {problem}; leave it out")
        for place, name in enumerate(row.target_name):
            where = f"{path}.target_name[{place}]"
            if name in taken:
                problem = f"target output name '{name}' can only be specified once"
                report.add(where, _CODE, f"{path}: {problem}")
            elif name not in outputs and (report.complete or outputs):
                report.add(where, _CODE, f"{path}: unknown target output name '{name}'")
            taken.add(name)
            for problem in _sizes_missing(config, row, outputs.get(name)):
                report.add(where, _CODE, f"{path} {problem}")


def _kind(path: str, kind: str, row: Any, config: ModelConfig, report: FindingReport) -> None:
    if config.max_batch_size == 0 and report.batch_size_known(config):
        report.add(path, _CODE, f"{path} needs max_batch_size > 0, got 0")
    sources = list(row.source_input)
    if len(sources) != 1:
        name = row.Kind.Name(row.kind) if row.kind in row.Kind.values() else row.kind
        problem = f"batch {kind} kind '{name}' expects 1 source input, got {len(sources)}"
        report.add(f"{path}.source_input", _CODE, f"{path}: {problem}")
    inputs = {tensor.name: tensor for tensor in config.input}
    for place, source in enumerate(sources):
        where = f"{path}.source_input[{place}]"
        if source not in inputs and (report.complete or config.backend == "python"):
            report.add(where, _CODE, f"{path}: unknown source input name '{source}'")
        elif source in inputs and inputs[source].optional:
            problem = f"source input '{source}' is optional; a request without it has no shape"
            report.add(where, _CODE, f"{path}: {problem}")


def _sizes_missing(config: ModelConfig, row: Any, output: Any) -> Iterator[str]:
    """Dims of any size that the source input has no dimension for."""
    source = next((one for one in config.input if one.name in row.source_input), None)
    if output is None or source is None or not source.dims:
        return
    dims = list(output.reshape.shape if output.HasField("reshape") else output.dims)
    given = list(source.reshape.shape if source.HasField("reshape") else source.dims)
    if any(dim == -1 for dim in dims[len(given) :]):
        yield (
            f"scatters output '{output.name}' with dims {dims} by input '{source.name}' with dims "
            f"{given}, which says nothing of every -1; each is the size of the same dimension"
        )


RAGGED_RULES = (_ragged_inputs, _without_batches, _batch_inputs, _batch_outputs)
