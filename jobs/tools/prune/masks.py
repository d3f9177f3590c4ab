"""Unstructured pruning: weights set to zero, and kept zero while the rest is trained."""

from typing import Any

import torch
from torch import Tensor, nn

from control.jobs.specs.prune import PruneSpec
from jobs.tools.work import refuse

_CUTTABLE = (nn.Linear, nn.modules.conv._ConvNd)
_TRANSPOSED = nn.modules.conv._ConvTransposeNd
"""Whose weights are [inputs, outputs, kernel]."""


class MaskCutter:
    """Chooses weights to be zero, more with each stage; `apply` puts them back to zero."""

    def __init__(self, network: nn.Module, spec: PruneSpec) -> None:
        self._spec = spec
        layers = _layers(network, spec.keep)
        self._weights: list[Tensor] = [one.weight for one in layers]
        self._inputs = [int(isinstance(one, _TRANSPOSED)) ^ 1 for one in layers]
        self._masks: list[Tensor] = []
        self._stage = 0

    def cut(self) -> None:
        """Choose the weights of the next stage: the smallest, or the two smallest of every four."""
        self._stage += 1
        if self._spec.method == "2:4":
            self._masks = [
                two_of_four(weight, inputs)
                for weight, inputs in zip(self._weights, self._inputs, strict=True)
            ]
        else:
            self._masks = smallest(
                self._weights, self._spec.amount * self._stage / self._spec.stages
            )
        self.apply()

    def apply(self) -> None:
        """Zero the chosen weights."""
        with torch.no_grad():
            for weight, mask in zip(self._weights, self._masks, strict=True):
                weight.mul_(mask)


def smallest(weights: list[Tensor], share: float) -> list[Tensor]:
    """Masks, 0 for the `share` of all weights together that are smallest by magnitude."""
    every = torch.cat([one.detach().abs().flatten() for one in weights])
    count = int(share * len(every))
    if not count:
        return [torch.ones_like(one) for one in weights]
    limit = every.kthvalue(count).values
    return [(one.detach().abs() > limit).to(one.dtype) for one in weights]


def two_of_four(weight: Tensor, inputs: int = 1) -> Tensor:
    """A mask, 0 for the two smallest of each four weights along the inputs of one output; `inputs`
    is their axis, 0 of transposed convolutions.

    Inputs lie side by side as sparse kernels want them: [outputs, kernel, input channels]. Where
    their number is no multiple of 4, nothing is masked.
    """
    if weight.shape[inputs] % 4:
        return torch.ones_like(weight)
    inner = weight.detach().abs().movedim(inputs, -1)
    fours = inner.reshape(-1, 4)
    kept = fours.topk(2, dim=1).indices
    mask = torch.zeros_like(fours).scatter_(1, kept, 1.0)
    return mask.reshape(inner.shape).movedim(-1, inputs).contiguous()


def _layers(network: nn.Module, keep: tuple[str, ...]) -> list[Any]:
    """Layers to cut; of those that share a weight, the first."""
    modules = dict(network.named_modules())
    unknown = [name for name in keep if name not in modules]
    layers = {name: one for name, one in modules.items() if isinstance(one, _CUTTABLE)}
    if unknown:
        refuse(
            f"keep names '{unknown[0]}', which the network does not have; it has "
            f"{', '.join(layers)}"
        )
    kept = {part for name in keep for part in modules[name].modules()}
    shared = {id(one.weight) for one in kept if isinstance(one, _CUTTABLE)}
    found: list[Any] = []
    for one in layers.values():
        if id(one.weight) not in shared:
            shared.add(id(one.weight))
            found.append(one)
    if not found:
        refuse("the network has no linear or convolutional layer left to cut")
    return found
