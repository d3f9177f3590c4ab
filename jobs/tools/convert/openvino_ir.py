"""ONNX to OpenVINO's IR (model.xml, model.bin)."""

import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
from tritonclient.grpc import model_config_pb2 as pb

from control.jobs.specs.convert import ConvertSpec
from jobs.tools.convert.onnx_results import session_runner
from jobs.tools.convert.source_network import SourceNetwork
from jobs.tools.networks.files import first_line, load_network, version_name
from jobs.tools.networks.tensors import RowRunner, Rows
from jobs.tools.result.config import result_config
from jobs.tools.work import refuse

FILE = "model.xml"
_EXACT = {
    "INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1, "PERFORMANCE_HINT": "LATENCY",
    "INFERENCE_PRECISION_HINT": "f32",
}  # fmt: skip


def open_source(path: Path, config: pb.ModelConfig, spec: ConvertSpec) -> SourceNetwork:
    """The ONNX file, checked. Refuses what onnxruntime cannot run."""
    whose = version_name(spec)
    load_network(path, whose)
    run, inputs, _ = session_runner(path, whose)
    result = result_config(config, spec.model, "openvino", same_runtime=False)

    def write(folder: Path) -> list[str]:
        return _write(path, folder, spec)

    return SourceNetwork(
        "an ONNX network", inputs, run, write, _open, result, ("openvino", "onnxruntime"), nan=True
    )


def _write(path: Path, folder: Path, spec: ConvertSpec) -> list[str]:
    openvino = _openvino()
    try:
        model = openvino.convert_model(str(path))
        openvino.save_model(model, str(folder / FILE), compress_to_fp16=spec.weights == "fp16")
    except Exception as error:  # noqa: BLE001 - its errors have no common class
        refuse(f"OpenVINO cannot convert {path.name}: {first_line(error)}")
    return []


def _open(folder: Path) -> RowRunner:
    openvino = _openvino()
    core = openvino.Core()
    compiled = core.compile_model(core.read_model(str(folder / FILE)), "CPU", _EXACT)
    request = compiled.create_infer_request()
    names = [one.any_name for one in compiled.outputs]

    def run(rows: Rows) -> Rows:
        request.infer(dict(rows))
        return {
            name: np.array(request.get_output_tensor(index).data)
            for index, name in enumerate(names)
        }

    return run


def _openvino() -> Any:
    """OpenVINO, what reports to its vendor replaced before the import."""
    if "openvino_telemetry" not in sys.modules:
        silent = types.ModuleType("openvino_telemetry")
        silent.Telemetry = _NoTelemetry  # type: ignore[attr-defined]
        sys.modules["openvino_telemetry"] = silent
    import openvino

    return openvino


class _NoTelemetry:
    """Stands in for the class that reports usage; answers every method with nothing."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __getattr__(self, _: str) -> Any:
        return lambda *_, **__: None
