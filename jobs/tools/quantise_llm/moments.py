"""The second moments of what linears are given: all that GPTQ and AWQ know of the data."""

from contextlib import ExitStack

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle


class InputMoments:
    """Of one linear's inputs: `square` [inputs, inputs], the mean of x xᵀ, and `size`, of |x|."""

    def __init__(self, inputs: int) -> None:
        self.square = torch.zeros(inputs, inputs)
        self.size = torch.zeros(inputs)
        self._rows = 0

    def add(self, rows: Tensor) -> None:
        """Count rows [..., inputs] in."""
        flat = rows.detach().reshape(-1, rows.shape[-1]).float()
        total = self._rows + len(flat)
        self.square.mul_(self._rows / total).addmm_(flat.t(), flat, alpha=1 / total)
        self.size.mul_(self._rows / total).add_(flat.abs().sum(0), alpha=1 / total)
        self._rows = total


class MomentsOf:
    """While open, counts what these linears of a module are given. A context manager."""

    def __init__(self, linears: dict[str, nn.Linear]) -> None:
        self._linears = linears
        self._stack = ExitStack()

    def __enter__(self) -> dict[str, InputMoments]:
        found = {name: InputMoments(one.in_features) for name, one in self._linears.items()}
        for name, linear in self._linears.items():
            self._stack.callback(_counting(linear, found[name]).remove)
        return found

    def __exit__(self, *reasons: object) -> None:
        self._stack.close()


def _counting(linear: nn.Linear, moments: InputMoments) -> RemovableHandle:
    def count(module: nn.Module, given: tuple[Tensor, ...]) -> None:
        moments.add(given[0])

    return linear.register_forward_pre_hook(count)
