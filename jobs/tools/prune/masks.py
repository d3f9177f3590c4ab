"""Unstructured pruning: weights set to zero, and kept zero while the rest is trained."""

import torch
from torch import Tensor, nn

from control.jobs.specs.prune import PruneSpec
from jobs.tools.work import refuse

_CUTTABLE = (nn.Linear, nn.modules.conv._ConvNd)


class MaskCutter:
    """Chooses weights to be zero, more with each stage; `apply` puts them back to zero."""

    def __init__(self, network: nn.Module, spec: PruneSpec) -> None:
        self._spec = spec
        self._weights = _weights(network, spec.keep)
        self._masks: list[Tensor] = []
        self._stage = 0

    def cut(self) -> None:
        """Choose the weights of the next stage: the smallest, or the two smallest of every four."""
        self._stage += 1
        if self._spec.method == "2:4":
            self._masks = [two_of_four(one) for one in self._weights]
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


def two_of_four(weight: Tensor) -> Tensor:
    """A mask, 0 for the two smallest of each four weights along the inputs of one output.

    Inputs lie side by side as sparse kernels want them: [outputs, kernel, input channels]. Where
    their number is no multiple of 4, nothing is masked.
    """
    if weight.shape[1] % 4:
        return torch.ones_like(weight)
    inner = weight.detach().abs().movedim(1, -1)
    fours = inner.reshape(-1, 4)
    kept = fours.topk(2, dim=1).indices
    mask = torch.zeros_like(fours).scatter_(1, kept, 1.0)
    return mask.reshape(inner.shape).movedim(-1, 1).contiguous()


def _weights(network: nn.Module, keep: tuple[str, ...]) -> list[Tensor]:
    modules = dict(network.named_modules())
    unknown = [name for name in keep if name not in modules]
    layers = {name: one for name, one in modules.items() if isinstance(one, _CUTTABLE)}
    if unknown:
        refuse(
            f"keep names '{unknown[0]}', which the network does not have; it has "
            f"{', '.join(layers)}"
        )
    kept = {part for name in keep for part in modules[name].modules()}
    weights: list[Tensor] = [one.weight for one in layers.values() if one not in kept]
    if not weights:
        refuse("the network has no linear or convolutional layer left to cut")
    return weights
