"""The network: three convolutions and a classifier, with weights from a fixed seed."""

import itertools
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

Array = NDArray[np.float32]

SIZE, CHANNELS, CLASSES = 64, (3, 16, 32, 64), 100
"""Images are FP32 [n, 3, 64, 64], answers FP32 [n, 100]; 11.6 million multiplications an image."""

INPUT, OUTPUT = "IMAGE", "SCORES"
FLAT = CHANNELS[-1] * (SIZE // 2 ** (len(CHANNELS) - 1)) ** 2


class Layer(NamedTuple):
    """Weights of a layer as torch has them: [out, in, 3, 3] or [out, in], and [out]."""

    weight: Array
    bias: Array


def network() -> nn.Module:
    """The same on every machine."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(64)
        layers: list[nn.Module] = []
        for before, after in itertools.pairwise(CHANNELS):
            layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        return nn.Sequential(*layers, nn.Flatten(), nn.Linear(FLAT, CLASSES)).eval()


def layers_of(made: nn.Module) -> list[Layer]:
    """The convolutions and, last, the classifier."""
    return [
        Layer(one.weight.detach().numpy(), one.bias.detach().numpy())
        for one in made.modules()
        if isinstance(one, nn.Conv2d | nn.Linear)
    ]
