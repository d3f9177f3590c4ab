"""Weights in fewer bits: symmetric int8 per output channel, symmetric int4 per group of inputs."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from backends.llm.config.precision import GROUP

__all__ = ["GROUP", "QuantisedTensor", "Weight", "joined", "plain", "restore"]
__all__ += ["fits_int4", "quantise_int4", "quantise_int8"]


class QuantisedTensor(NamedTuple):
    """Whole numbers, int8 [outputs, inputs], and float32 scales [outputs, groups]."""

    values: Tensor
    scales: Tensor

    @property
    def shape(self) -> torch.Size:
        """Outputs and inputs."""
        return self.values.shape


Weight = Tensor | QuantisedTensor
"""[outputs, inputs]: numbers, or whole numbers that a checkpoint stores with their scales."""


def plain(weight: Weight) -> Tensor:
    """The weight as numbers."""
    return restore(weight) if isinstance(weight, QuantisedTensor) else weight


def quantise_int8(weight: Weight) -> QuantisedTensor:
    """-127 to 127, one scale per output. Also used for activations, one scale per row.

    A stored weight with one scale per output stays as it is.
    """
    if isinstance(weight, QuantisedTensor) and weight.scales.shape[1] == 1:
        return weight
    weight = plain(weight).float()
    scales = weight.abs().amax(1, keepdim=True) / 127
    scales = torch.where(scales == 0, 1.0, scales)
    return QuantisedTensor((weight / scales).round().to(torch.int8), scales)


def quantise_int4(weight: Weight) -> QuantisedTensor:
    """-8 to 7, one scale per GROUP inputs, chosen for the least squared error.

    The number of inputs must be a multiple of GROUP. A stored weight with these groups stays as it
    is.
    """
    outputs, inputs = weight.shape
    if isinstance(weight, QuantisedTensor) and fits_int4(weight):
        return weight
    weight = plain(weight)
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


def fits_int4(weight: QuantisedTensor) -> bool:
    """Whether it has the groups and the range that int4 is computed with."""
    grouped = weight.scales.shape[1] * GROUP == weight.shape[1]
    return grouped and bool(((weight.values >= -8) & (weight.values <= 7)).all())


def joined(weights: Sequence[Weight]) -> Weight:
    """A copy of weights of the same inputs as one; stored ones stay so if all have such groups."""
    stored = [one for one in weights if isinstance(one, QuantisedTensor)]
    if len(stored) < len(weights) or len({one.scales.shape[1] for one in stored}) > 1:
        return torch.cat([plain(one) for one in weights])
    values = torch.cat([one.values for one in stored])
    return QuantisedTensor(values, torch.cat([one.scales for one in stored]))


def restore(quantised: QuantisedTensor) -> Tensor:
    """The float32 weight that the whole numbers stand for."""
    outputs, inputs = quantised.values.shape
    groups = quantised.scales.shape[1]
    values = quantised.values.float().view(outputs, groups, inputs // groups)
    return (values * quantised.scales[..., None]).view(outputs, inputs)
