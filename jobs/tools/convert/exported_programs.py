"""Programs of torch.export (model.pt2) to ONNX.

torch runs code that a program brings; the worker hands over none that does unless the spec says
`trusted`.
"""

from pathlib import Path
from typing import Any

import torch
from tritonclient.grpc import model_config_pb2 as pb

from control.jobs.specs.convert import ConvertSpec
from jobs.tools.convert.onnx_results import onnx_config, open_onnx
from jobs.tools.convert.signatures import require_inputs
from jobs.tools.convert.source_network import SourceNetwork
from jobs.tools.convert.torch_export import (
    FlatOutputs,
    TorchNetwork,
    example_of,
    export,
    in_order,
    output_names,
    silenced,
    torch_runner,
)
from jobs.tools.networks.files import FILE, first_line, version_name
from jobs.tools.work import refuse


def open_source(path: Path, config: pb.ModelConfig, spec: ConvertSpec) -> SourceNetwork:
    """The program as a module. Refuses what torch cannot load."""
    what = f"{path.name} of {version_name(spec)}"
    inputs = require_inputs(config, what)
    try:
        program = torch.export.load(str(path))
        module = program.module()
    except Exception as error:  # noqa: BLE001 - torch's loader raises many classes
        refuse(f"{what} is no program of torch.export: {first_line(error)}")
    arguments = [str(one) for one in program.graph_signature.user_inputs]
    network = TorchNetwork(module, in_order(inputs, arguments), [one.name for one in config.output])
    return SourceNetwork(
        "a program of torch.export", network.inputs, torch_runner(network),
        lambda folder: _write(program, network, folder, spec, what), open_onnx,
        onnx_config(config, spec.model), ("torch", "onnxscript", "onnx"),
    )  # fmt: skip


def _write(
    program: Any, network: TorchNetwork, folder: Path, spec: ConvertSpec, what: str
) -> list[str]:
    """Its open dimensions are in the program; tracing it anew is the way out."""
    example = example_of(network)
    tried = []
    if spec.exporter != "torchscript":
        try:
            with silenced(), torch.no_grad():
                names = output_names(network, network.module(*example))
                torch.onnx.export(
                    program, (), str(folder / FILE), dynamo=True, external_data=False,
                    input_names=[one.name for one in network.inputs], output_names=names,
                    verbose=False,
                )  # fmt: skip
        except Exception as error:  # noqa: BLE001 - the exporter raises what a program provokes
            tried.append(f"the dynamo exporter failed: {first_line(error)}")
        else:
            return tried
        if spec.exporter == "dynamo":
            refuse(f"torch cannot export {what}: {tried[0]}")
    try:
        with silenced(), torch.no_grad():
            names = output_names(network, network.module(*example))
            flat = FlatOutputs(network.module)
            traced = torch.jit.trace(flat, example, check_trace=False)  # type: ignore[no-untyped-call]
    except Exception as error:  # noqa: BLE001 - tracing runs the module
        refuse(f"torch cannot trace {what}: {first_line(error)}")
    traced_network = TorchNetwork(traced, network.inputs, names)
    return tried + export(traced_network, example, folder, ["torchscript"], what)
