"""A recipe: the digits of scikit-learn, turned and moved on a canvas of 16 by 16, and their CNN.

The network has 21 million multiply-adds an image; the student a quarter of its weights.
"""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import affine_grid, grid_sample, interpolate

WIDTHS = (32, 64, 128, 160)
STUDENT = (16, 32, 60, 72)
HELD_OUT, COPIES, BATCH = 360, 5, 64
TURN, MOVE, NOISE = 0.25, 0.15, 0.15


def network(version: Path) -> nn.Module:
    """The trained network."""
    made = layers(WIDTHS)
    made.load_state_dict(torch.load(version / "weights.pt", weights_only=True))
    return made


def student(version: Path) -> nn.Module:
    """A network of the same shape with a quarter of the weights."""
    return layers(STUDENT)


def batches(split: str, data: Path, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """One pass: each training image once, drawn anew, or five copies of each held-out one."""
    images, targets = _digits(split == "held_out")
    held_out = split == "held_out"
    draw = torch.Generator().manual_seed(10**6 if held_out else seed)
    for _ in range(COPIES if held_out else 1):
        order = torch.randperm(len(images), generator=draw)
        for rows in order.split(BATCH):  # type: ignore[no-untyped-call]
            yield drawn(images[rows], draw), targets[rows]


def layers(widths: tuple[int, int, int, int]) -> nn.Module:
    """[rows, 1, 16, 16] to logits [rows, 10]."""
    first, second, third, fourth = widths
    return nn.Sequential(
        *_block(1, first), *_block(first, second), nn.MaxPool2d(2),
        *_block(second, third), *_block(third, fourth), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(fourth * 16, 10),
    )  # fmt: skip


def drawn(images: Tensor, draw: torch.Generator) -> Tensor:
    """Each image turned by up to 14 degrees, moved by up to 1.2 dots, with noise."""
    turn = (torch.rand(len(images), generator=draw) * 2 - 1) * TURN
    move = (torch.rand(len(images), 2, generator=draw) * 2 - 1) * MOVE
    cosine, sine = turn.cos(), turn.sin()
    rows = (torch.stack([cosine, -sine, move[:, 0]], 1), torch.stack([sine, cosine, move[:, 1]], 1))
    grid = affine_grid(torch.stack(rows, 1), list(images.shape), align_corners=False)
    turned = grid_sample(images, grid, align_corners=False)
    return turned + NOISE * torch.randn(turned.shape, generator=draw)


def _block(inputs: int, outputs: int) -> tuple[nn.Module, ...]:
    convolution = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
    return convolution, nn.BatchNorm2d(outputs), nn.ReLU()


@cache
def _digits(held_out: bool) -> tuple[Tensor, Tensor]:
    pixels, labels = load_digits(return_X_y=True)
    images = torch.tensor(pixels / 16, dtype=torch.float32).view(-1, 1, 8, 8)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(7))
    rows = order[:HELD_OUT] if held_out else order[HELD_OUT:]
    large = interpolate(images[rows], size=(16, 16), mode="bilinear", align_corners=False)
    return large, torch.tensor(labels)[rows]
