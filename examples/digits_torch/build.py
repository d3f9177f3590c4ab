"""Writes the better digits network as a torch.export program."""

from pathlib import Path

import torch
from torch import nn

from examples.digits.network import trained

BETTER = 2


class Reader(nn.Module):
    """The network with names for what goes in and comes out.

    A program's inputs are called as the arguments of `forward` (torch.export writes them in lower
    case), its outputs as the keys of the dictionary returned.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, image: torch.Tensor) -> dict[str, torch.Tensor]:
        """FP32 [n, 1, 8, 8] → LOGITS FP32 [n, 10]."""
        return {"LOGITS": self.network(image)}


def build(version: int, folder: Path) -> None:
    """Write `model.pt2`: the same network as version 2 of `digits`, batch dimension free."""
    sample = torch.zeros(2, 1, 8, 8)
    rows = torch.export.Dim("rows", min=1, max=64)
    reader = Reader(trained(BETTER)).eval()
    program = torch.export.export(reader, (sample,), dynamic_shapes={"image": {0: rows}})
    torch.export.save(program, folder / "model.pt2")
