"""A trained network written as ONNX with an open number of rows, and checked against itself."""

import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from jobs.tools.networks.files import first_line
from jobs.tools.training.recipe import Recipe
from jobs.tools.training.version import (
    OnnxAnswer,
    Outputs,
    SourceVersion,
    largest_gap,
    rows_of,
    tensors_of,
)
from jobs.tools.work import refuse

OPSET = 17
EXPORTED_ROWS = 2
"""With one row an exporter takes the number of rows for a constant."""
CHECKED_ROWS = (1, 3, 8)
TOLERANCE = 1e-3
"""Of the largest output: what the same sums in another order differ by at most."""


def export(recipe: Recipe, version: SourceVersion, network: nn.Module, path: Path) -> float:
    """Write the network under the version's tensor names; the largest relative difference.

    Refuses a network that does not export, or whose file answers otherwise than it does.
    """
    network.eval()
    example = recipe.example()
    wanted = {rows: _answers(recipe, network, rows_of(example, rows)) for rows in CHECKED_ROWS}
    outputs = len(wanted[CHECKED_ROWS[0]])
    if len(example) != len(version.inputs) or outputs != len(version.outputs):
        refuse(
            f"the recipe's network has {len(example)} inputs and {outputs} outputs, but "
            f"{version.name} has {', '.join(version.inputs)} and {', '.join(version.outputs)}"
        )
    _write(version, network, rows_of(example, EXPORTED_ROWS), path)
    answer = OnnxAnswer(path, "the exported network", 1)
    gap = max(
        largest_gap(expected, tensors_of(answer(*rows_of(example, rows)), "the exported network"))
        for rows, expected in wanted.items()
    )
    if not gap <= TOLERANCE:
        refuse(
            f"the exported network differs from the trained one by {gap:.2g} of the largest "
            f"output, more than {TOLERANCE:g}: its forward may depend on the number of rows or "
            "compute something that ONNX has no operator for"
        )
    return gap


def _answers(recipe: Recipe, network: nn.Module, inputs: tuple[Tensor, ...]) -> Outputs:
    with torch.no_grad():
        found = tensors_of(recipe.forward(network, inputs), "the recipe's network")
    return tuple(one.clone() for one in found)


def _write(
    version: SourceVersion, network: nn.Module, example: tuple[Tensor, ...], path: Path
) -> None:
    """By the exporter that traces, which needs a twentieth of the other's time; else by that."""
    given: dict[str, Any] = {
        "input_names": version.inputs,
        "output_names": version.outputs,
        "dynamic_axes": version.open_axes(),
        "opset_version": OPSET,
    }
    reasons = []
    for tried in (given | {"dynamo": False}, given | {"dynamo": True, "external_data": False}):
        try:
            with torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                torch.onnx.export(network, example, str(path), **tried)
        except Exception as error:  # noqa: BLE001 - exporters run the user's code
            reasons.append(first_line(error))
        else:
            return
    refuse(f"the network cannot be exported to ONNX: {reasons[0]}; and, traced anew: {reasons[1]}")
