"""MobileNetV2 (Sandler et al., 2018), width 1.0, with random weights: 3.5 million of them."""

import torch
from torch import nn

STAGES = (
    # expansion, channels, blocks, stride of the first block
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
FIRST, LAST, CLASSES = 32, 1280, 1000


class InvertedResidual(nn.Module):
    """Widen, filter each channel, narrow; with a shortcut where the shape stays."""

    def __init__(self, inside: int, outside: int, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = inside * expansion
        self.shortcut = stride == 1 and inside == outside
        widen = [_convolution(inside, hidden, 1)] if expansion > 1 else []
        self.layers = nn.Sequential(
            *widen,
            _convolution(hidden, hidden, 3, stride=stride, groups=hidden),
            nn.Conv2d(hidden, outside, 1, bias=False),
            nn.BatchNorm2d(outside),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """[n, inside, h, w] → [n, outside, h / stride, w / stride]."""
        filtered: torch.Tensor = self.layers(images)
        return images + filtered if self.shortcut else filtered


def mobilenet_v2(seed: int = 0) -> nn.Module:
    """FP32 [n, 3, 224, 224] → FP32 [n, 1000]; the same weights for the same seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = nn.Sequential(
            _convolution(3, FIRST, 3, stride=2),
            *_blocks(),
            _convolution(STAGES[-1][1], LAST, 1),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(LAST, CLASSES),
        )
        for module in network.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight)
    return network.eval()


def _blocks() -> list[nn.Module]:
    blocks: list[nn.Module] = []
    inside = FIRST
    for expansion, channels, count, first_stride in STAGES:
        for number in range(count):
            stride = first_stride if number == 0 else 1
            blocks.append(InvertedResidual(inside, channels, stride, expansion))
            inside = channels
    return blocks


def _convolution(
    inside: int, outside: int, size: int, *, stride: int = 1, groups: int = 1
) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(inside, outside, size, stride, size // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outside),
        nn.ReLU6(),
    )
