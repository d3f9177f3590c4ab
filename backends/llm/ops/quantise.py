"""Weights in fewer bits: symmetric int8 per output channel, symmetric int4 per group of inputs."""

from typing import NamedTuple

import torch
from torch import Tensor

from backends.llm.config.precision import GROUP

__all__ = ["GROUP", "QuantisedTensor", "quantise_int4", "quantise_int8"]


class QuantisedTensor(NamedTuple):
    """Whole numbers, int8 [outputs, inputs], and float32 scales [outputs, groups]."""

    values: Tensor
    scales: Tensor


def quantise_int8(weight: Tensor) -> QuantisedTensor:
    """-127 to 127, one scale per output. Also used for activations, one scale per row."""
    weight = weight.float()
    scales = weight.abs().amax(1, keepdim=True) / 127
    scales = torch.where(scales == 0, 1.0, scales)
    return QuantisedTensor((weight / scales).round().to(torch.int8), scales)


def quantise_int4(weight: Tensor) -> QuantisedTensor:
    """-8 to 7, one scale per GROUP inputs, chosen for the least squared error.

    The number of inputs must be a multiple of GROUP.
    """
    outputs, inputs = weight.shape
    groups = weight.float().view(outputs, inputs // GROUP, GROUP)
    extreme = groups.gather(2, groups.abs().argmax(2, keepdim=True))
    best = torch.full_like(extreme, torch.inf)
    chosen = torch.ones_like(extreme)
    for steps in (8.0, 8.7, 7.0, 7.5, 6.2):
        # The largest weight becomes -8 (or about 7 with the other sign): one more level is used.
        scales = extreme / -steps
        scales = torch.where(scales == 0, 1.0, scales)
        error = ((groups / scales).round().clamp(-8, 7) * scales - groups).square()
        error = error.sum(2, keepdim=True)
        chosen, best = torch.where(error < best, scales, chosen), torch.minimum(error, best)
    values = (groups / chosen).round().clamp(-8, 7).to(torch.int8)
    return QuantisedTensor(values.view(outputs, inputs), chosen.squeeze(2))


def restore(quantised: QuantisedTensor) -> Tensor:
    """The float32 weight that the whole numbers stand for."""
    outputs, inputs = quantised.values.shape
    groups = quantised.scales.shape[1]
    values = quantised.values.float().view(outputs, groups, inputs // groups)
    return (values * quantised.scales[..., None]).view(outputs, inputs)
