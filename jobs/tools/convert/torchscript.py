"""TorchScript (model.pt) to ONNX. Its code is compiled and run, and some of torch's operators read
and write files: only the sandbox of the process confines it."""

from pathlib import Path

import torch
from tritonclient.grpc import model_config_pb2 as pb

from control.jobs.specs.convert import ConvertSpec
from jobs.tools.convert.onnx_results import onnx_config, open_onnx
from jobs.tools.convert.signatures import require_inputs
from jobs.tools.convert.source_network import SourceNetwork
from jobs.tools.convert.torch_export import (
    TorchNetwork,
    example_of,
    export,
    in_order,
    torch_runner,
)
from jobs.tools.networks.files import first_line, version_name
from jobs.tools.work import refuse

_ORDERS = {
    "auto": ("torchscript", "dynamo"), "torchscript": ("torchscript",), "dynamo": ("dynamo",),
}  # fmt: skip
"""The old exporter was made for TorchScript, and dynamo cannot look into it."""


def open_source(path: Path, config: pb.ModelConfig, spec: ConvertSpec) -> SourceNetwork:
    """The module on the CPU. Refuses what torch cannot load."""
    inputs = require_inputs(config, f"{path.name} of {version_name(spec)}")
    try:
        module = torch.jit.load(  # type: ignore[no-untyped-call]
            str(path), map_location="cpu"
        ).eval()
    except Exception as error:  # noqa: BLE001 - torch's loader raises many classes
        refuse(f"{path.name} of {version_name(spec)} is no TorchScript: {first_line(error)}")
    arguments = [one.name for one in module.forward.schema.arguments[1:]]
    network = TorchNetwork(module, in_order(inputs, arguments), [one.name for one in config.output])
    what = f"{path.name} of {version_name(spec)}"
    return SourceNetwork(
        "TorchScript", network.inputs, torch_runner(network),
        lambda folder: export(network, example_of(network), folder, _ORDERS[spec.exporter], what),
        open_onnx, onnx_config(config, spec.model), ("torch", "onnxscript", "onnx"),
    )  # fmt: skip
