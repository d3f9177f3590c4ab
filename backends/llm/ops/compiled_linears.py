"""Weights in the layouts that our kernels want: outputs in blocks of 16, inputs side by side.

The layouts are described at the kernels that read them (`backends/llm/kernels/avx512/linears.cpp`,
`int4.cpp`).
"""

import torch
from torch import Tensor
from torch.nn import functional

from backends.llm.kernels.library import at, kernels, new_rows
from backends.llm.ops.quantise import GROUP, Weight, plain, quantise_int4, quantise_int8

OUTPUTS = 32
"""Weights are padded to a multiple of so many outputs; inputs must be one of GROUP."""


class _PaddedLinear:
    """What the three precisions share: the padding of outputs and the type of results."""

    def __init__(self, weight: Weight, bias: Tensor | None, wide: bool) -> None:
        self.outputs, self.inputs = weight.shape
        self._padded = -(-self.outputs // OUTPUTS) * OUTPUTS
        self._bias = None if bias is None else _pad(bias.float(), self._padded)
        self._wide = wide

    def _new_result(self, count: int) -> Tensor:
        dtype = torch.float32 if self._wide else torch.bfloat16
        return new_rows(count, self._padded, dtype)

    def _cut(self, result: Tensor) -> Tensor:
        if self._padded == self.outputs:
            return result
        return result[:, : self.outputs].contiguous()


class CompiledBf16(_PaddedLinear):
    """bfloat16 weights and rows."""

    def __init__(self, weight: Weight, bias: Tensor | None, wide: bool) -> None:
        super().__init__(weight, bias, wide)
        exact = _pad(plain(weight).to(torch.bfloat16), self._padded)
        self._weight = _blocked(exact, 2)
        self.bytes = self._weight.nbytes

    def __call__(self, rows: Tensor) -> Tensor:
        result = self._new_result(len(rows))
        kernels().linear_bf16(
            at(rows), at(self._weight), at(self._bias), at(result),
            self._wide, len(rows), self._padded, self.inputs,
        )  # fmt: skip
        return self._cut(result)


class CompiledInt8(_PaddedLinear):
    """int8 weights; rows are quantised to int8 with a scale each."""

    def __init__(self, weight: Weight, bias: Tensor | None, wide: bool) -> None:
        super().__init__(weight, bias, wide)
        values, scales = quantise_int8(weight)
        shifted = (values.to(torch.int16) + 128).to(torch.uint8)
        self._weight = _blocked(_pad(shifted, self._padded, 128), 4)
        self._scales = _pad(scales.squeeze(1), self._padded)
        self.bytes = self._weight.nbytes + self._scales.nbytes

    def __call__(self, rows: Tensor) -> Tensor:
        result = self._new_result(len(rows))
        whole, scales, sums = quantise_rows(rows, self.inputs, 128)
        kernels().linear_int8(
            at(whole), at(scales), at(sums), at(self._weight), at(self._scales), at(self._bias),
            at(result), self._wide, len(rows), self._padded, self.inputs,
        )  # fmt: skip
        return self._cut(result)


class CompiledInt4(_PaddedLinear):
    """int4 weights with a scale per 32 inputs; rows are quantised to int8 with a scale each."""

    def __init__(self, weight: Weight, bias: Tensor | None, wide: bool) -> None:
        super().__init__(weight, bias, wide)
        values, scales = quantise_int4(weight)
        shifted = _pad((values + 8).to(torch.uint8), self._padded, 8)
        halves = shifted.view(self._padded, -1, 2, 4)
        both = (halves[:, :, 0] | (halves[:, :, 1] << 4)).reshape(self._padded, -1)
        self._weight = _blocked(both, 4)
        padded_scales = _pad(scales, self._padded)
        self._scales = _blocked(padded_scales, 1)
        self.bytes = self._weight.nbytes + self._scales.nbytes

    def __call__(self, rows: Tensor) -> Tensor:
        result = self._new_result(len(rows))
        whole, scales, sums = quantise_rows(rows, GROUP, 8)
        kernels().linear_int4(
            at(whole), at(scales), at(sums), at(self._weight), at(self._scales), at(self._bias),
            at(result), self._wide, len(rows), self._padded, self.inputs,
        )  # fmt: skip
        return self._cut(result)


def quantise_rows(rows: Tensor, group: int, times: int) -> tuple[Tensor, Tensor, Tensor]:
    """int8 rows, a scale for each, and the sums of every `group` numbers, `times` times."""
    count, width = rows.shape
    whole = new_rows(count, width, torch.int8)
    scales = torch.empty(count)
    sums = new_rows(count, width // group, torch.int32)
    kernels().quantise_rows(at(rows), at(whole), at(scales), at(sums), count, width, group, times)
    return whole, scales, sums


def _pad(weight: Tensor, outputs: int, value: float = 0.0) -> Tensor:
    missing = outputs - len(weight)
    if not missing:
        return weight.contiguous()
    shape = (0, missing) if weight.dim() == 1 else (0, 0, 0, missing)
    return functional.pad(weight, shape, value=value)


def _blocked(weight: Tensor, together: int) -> Tensor:
    """[outputs, inputs] → [outputs / 16, inputs / together, 16, together]."""
    outputs, inputs = weight.shape
    parts = weight.view(outputs // 16, 16, inputs // together, together)
    return parts.permute(0, 2, 1, 3).contiguous()
