"""Writes a version of the digits network as ONNX."""

from pathlib import Path

import torch

from examples.digits.network import trained
from examples.onnx_file import export


def build(version: int, folder: Path) -> None:
    """Train the version's network and write `model.onnx`: IMAGE [n,1,8,8] → LOGITS [n,10]."""
    export(trained(version), torch.zeros(2, 1, 8, 8), folder / "model.onnx", ("IMAGE", "LOGITS"))
