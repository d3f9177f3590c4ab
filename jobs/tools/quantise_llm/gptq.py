"""GPTQ: weights are rounded input by input, and those not rounded yet carry the errors.

Frantar, Ashkboos, Hoefler and Alistarh 2022: the rounding error of an input's weights is spread
over the inputs that follow, by the inverse of the Hessian of the squared error of the outputs.
"""

import torch
from torch import Tensor

from jobs.tools.quantise_llm.rounding import RANGES, Rounded, best_scales, group_of

BLOCK = 128
"""Inputs whose errors reach the rest in one product."""
MORE_DAMPING = 10.0
MOST_TRIES = 4


class NoInverseError(Exception):
    """InputMoments whose inverse does not exist, whatever is added to their diagonal."""


def gptq(weight: Tensor, square: Tensor, bits: int, *, damping: float, act_order: bool) -> Rounded:
    """Round float32 [outputs, inputs] for inputs with these second moments [inputs, inputs].

    act_order: inputs with the largest moments first; groups keep their inputs, and their scales
    are chosen before anything is rounded. Raises NoInverseError where the moments are no
    numbers.
    """
    weight, square = weight.clone(), square.clone()
    unused = square.diagonal() == 0
    weight[:, unused] = 0.0
    square.diagonal()[unused] = 1.0
    importance = square.diagonal().clone()
    scales = best_scales(weight, bits, importance)
    order = importance.argsort(descending=True) if act_order else torch.arange(len(importance))
    factor = _inverse_factor(square[order][:, order], damping)
    values = _Rounder(weight[:, order], factor, scales, bits, order, importance).values()
    back = torch.empty_like(values)
    back[:, order] = values
    return Rounded(back, scales)


class _Rounder:
    """One pass over a weight whose inputs are in the order of rounding; changes `scales` where that
    order is the stored one, because a group's weights have taken up errors by then."""

    def __init__(
        self,
        weight: Tensor,
        factor: Tensor,
        scales: Tensor,
        bits: int,
        order: Tensor,
        importance: Tensor,
    ) -> None:
        self._weight = weight
        self._factor = factor
        self._scales = scales
        self._bits = bits
        self._order = order.tolist()
        self._importance = importance
        self._group = group_of(bits, weight.shape[1])
        self._in_order = self._order == sorted(self._order) and bits == 4
        self._values = torch.empty(weight.shape, dtype=torch.int8)

    def values(self) -> Tensor:
        """int8 [outputs, inputs] in the order of rounding."""
        inputs = self._weight.shape[1]
        for first in range(0, inputs, BLOCK):
            last = min(first + BLOCK, inputs)
            errors = self._block(first, last)
            self._weight[:, last:] -= errors @ self._factor[first:last, last:]
        return self._values

    def _block(self, first: int, last: int) -> Tensor:
        block = self._weight[:, first:last]
        factor = self._factor[first:last, first:last]
        errors = torch.empty_like(block)
        low, high = RANGES[self._bits]
        for at in range(last - first):
            column = first + at
            if self._in_order and column % self._group == 0:
                self._rescale(column)
            scale = self._scales[:, self._order[column] // self._group]
            whole = (block[:, at] / scale).round().clamp(low, high)
            self._values[:, column] = whole.to(torch.int8)
            error = (block[:, at] - whole * scale) / factor[at, at]
            block[:, at:] -= error[:, None] * factor[at, at:]
            errors[:, at] = error
        return errors

    def _rescale(self, column: int) -> None:
        part = slice(column, column + self._group)
        weight, importance = self._weight[:, part].contiguous(), self._importance[part]
        self._scales[:, column // self._group] = best_scales(weight, self._bits, importance)[:, 0]


def _inverse_factor(square: Tensor, damping: float) -> Tensor:
    """The upper Cholesky factor of the inverse; more is added to the diagonal if it has none."""
    mean = square.diagonal().mean()
    for attempt in range(MOST_TRIES):
        damped = square + torch.eye(len(square)) * (damping * MORE_DAMPING**attempt * mean)
        lower, failed = torch.linalg.cholesky_ex(damped)
        if not int(failed):
            inverse = torch.cholesky_inverse(lower)
            upper, failed = torch.linalg.cholesky_ex(inverse, upper=True)
            if not int(failed):
                factor: Tensor = upper
                return factor
    raise NoInverseError("the inputs' second moments have no inverse")
