"""ResNet-18 (He et al., 2016) with random weights: 11.2 million of them."""

import torch
from torch import nn

STAGES = ((64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1))
"""Channels and stride of each block."""
FIRST, WIDTH = 64, 512


class ResidualBlock(nn.Module):
    """Two convolutions of three by three beside a shortcut."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(inside, outside, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outside),
            nn.ReLU(),
            nn.Conv2d(outside, outside, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outside),
        )
        same = stride == 1 and inside == outside
        self.shortcut = (
            nn.Identity()
            if same
            else nn.Sequential(
                nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside)
            )
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """[n, inside, h, w] → [n, outside, h / stride, w / stride]."""
        return torch.relu(self.layers(images) + self.shortcut(images))


def resnet_18(classes: int, seed: int = 0) -> nn.Sequential:
    """FP32 [n, 3, h, w] → FP32 [n, classes]; the last layer is the classifier."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layers: list[nn.Module] = [
            nn.Conv2d(3, FIRST, 7, 2, 3, bias=False), nn.BatchNorm2d(FIRST), nn.ReLU(),
            nn.MaxPool2d(3, 2, 1),
        ]  # fmt: skip
        inside = FIRST
        for channels, stride in STAGES:
            layers.append(ResidualBlock(inside, channels, stride))
            inside = channels
        layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(WIDTH, classes)]
        return nn.Sequential(*layers)
