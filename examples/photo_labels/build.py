"""Writes the network as ONNX and the names of its classes; the other steps need no file."""

from pathlib import Path

import torch

from examples.onnx_file import export
from examples.photo_labels.network import trained
from examples.photo_labels.photographs import LABELS, SIDE


def build(version: int, folder: Path) -> None:
    """The ensemble's version folder is empty."""


def build_part(part: str, version: int, folder: Path) -> None:
    """The network: PIXELS [n,3,64,64] → LOGITS [n,4]; and `labels.txt`."""
    if part == "photo_network":
        sample = torch.zeros(2, 3, SIDE, SIDE)
        export(trained(), sample, folder / "model.onnx", ("PIXELS", "LOGITS"))
    elif part == "photo_names":
        (folder / "labels.txt").write_text("".join(f"{label}\n" for label in LABELS))
