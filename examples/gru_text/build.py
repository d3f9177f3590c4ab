"""Trains a small GRU and exports one step of it from torch as ONNX."""

from pathlib import Path

import torch

from examples.gru_text.network import STATE, trained
from examples.onnx_file import silenced


def build(version: int, folder: Path) -> None:
    """Write `model.onnx`: CHAR [n,1], STATE_IN [n,96] → NEXT [n,1], STATE_OUT [n,96]."""
    batch = {0: torch.export.Dim("batch", min=1)}
    with silenced():
        torch.onnx.export(
            trained(),
            (torch.zeros(2, 1, dtype=torch.int32), torch.zeros(2, STATE)),
            folder / "model.onnx",
            input_names=["CHAR", "STATE_IN"],
            output_names=["NEXT", "STATE_OUT"],
            dynamic_shapes=(batch, batch),
            external_data=False,
            dynamo=True,
            verbose=False,
        )
