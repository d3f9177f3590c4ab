"""Weights as whole numbers with scales, symmetric: one scale per output, or per group of inputs."""

from typing import NamedTuple

import torch
from torch import Tensor

GROUP = 32
"""Inputs that share a scale at 4 bits: what the engine computes with."""
_STEPS = {4: (8.0, 8.7, 7.0, 7.5, 6.2), 8: (127.0,)}
"""Number that a group's largest weight becomes, tried in turn; the other sign clips slightly."""
RANGES = {4: (-8, 7), 8: (-127, 127)}


class Rounded(NamedTuple):
    """Whole numbers int8 [outputs, inputs], and float32 scales [outputs, groups], which bfloat16
    can hold."""

    values: Tensor
    scales: Tensor

    def restored(self) -> Tensor:
        """The float32 weight that they stand for."""
        outputs, inputs = self.values.shape
        groups = self.values.float().view(outputs, self.scales.shape[1], -1)
        return (groups * self.scales[..., None]).view(outputs, inputs)


def group_of(bits: int, inputs: int) -> int:
    """Inputs that share a scale."""
    return GROUP if bits == 4 else inputs


def best_scales(weight: Tensor, bits: int, importance: Tensor | None = None) -> Tensor:
    """Scales [outputs, groups] with the least squared error, weighted by input if `importance`.

    weight: float32 [outputs, inputs]; importance: [inputs], not negative.
    """
    outputs, inputs = weight.shape
    group = group_of(bits, inputs)
    groups = weight.view(outputs, inputs // group, group)
    shares = torch.ones(inputs) if importance is None else importance
    shares = shares.view(1, -1, group)
    extreme = groups.gather(2, groups.abs().argmax(2, keepdim=True))
    best = torch.full_like(extreme, torch.inf)
    chosen = torch.ones_like(extreme)
    low, high = RANGES[bits]
    for step in _STEPS[bits]:
        scales = _storable(extreme / -step)
        whole = (groups / scales).round().clamp(low, high)
        error = ((whole * scales - groups).square() * shares).sum(2, keepdim=True)
        chosen, best = torch.where(error < best, scales, chosen), torch.minimum(error, best)
    return chosen.squeeze(2)


def round_to(weight: Tensor, scales: Tensor, bits: int) -> Rounded:
    """The nearest whole numbers."""
    outputs, inputs = weight.shape
    groups = weight.view(outputs, scales.shape[1], -1)
    whole = (groups / scales[..., None]).round().clamp(*RANGES[bits])
    return Rounded(whole.to(torch.int8).view(outputs, inputs), scales)


def round_to_nearest(weight: Tensor, bits: int) -> Rounded:
    """Each weight by itself."""
    return round_to(weight, best_scales(weight, bits), bits)


def _storable(scales: Tensor) -> Tensor:
    """As a checkpoint stores them; 1 for a group of zeros."""
    rounded = scales.to(torch.bfloat16).float()
    return torch.where(rounded == 0, 1.0, rounded)
