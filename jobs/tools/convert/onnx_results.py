"""Results in ONNX: run from their folder, their signature written into the config."""

from pathlib import Path

from tritonclient.grpc import model_config_pb2 as pb

from jobs.tools.networks.files import FILE
from jobs.tools.networks.sessions import inputs_of, open_session, outputs_of, run_rows
from jobs.tools.networks.tensors import NetworkTensor, RowRunner, Rows


def open_onnx(folder: Path) -> RowRunner:
    """The result of a folder, on one thread; all rows in one call."""
    session = open_session(folder / FILE, "the result")
    return lambda rows: run_rows(session, rows, _count(rows))


def session_runner(
    path: Path, whose: str
) -> tuple[RowRunner, list[NetworkTensor], list[NetworkTensor]]:
    """An ONNX source: its runner, inputs and outputs."""
    session = open_session(path, whose)
    return (
        lambda rows: run_rows(session, rows, _count(rows)),
        inputs_of(session),
        outputs_of(session),
    )


def onnx_config(config: pb.ModelConfig, model: str) -> pb.ModelConfig:
    """The source's config for a result that onnxruntime serves."""
    from jobs.tools.result.config import result_config

    return result_config(config, model, "onnxruntime", same_runtime=False)


def _count(rows: Rows) -> int:
    return len(next(iter(rows.values())))
