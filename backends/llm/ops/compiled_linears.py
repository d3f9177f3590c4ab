"""Weights in the layouts that our kernels want: outputs in blocks of 16, inputs side by side.

The layouts are described at the kernels that read them (`backends/llm/kernels/avx512/linears.cpp`,
`int4.cpp`); `packing.cpp` makes them.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from backends.llm.kernels.library import at, kernels, new_rows
from backends.llm.ops.quantise import GROUP, QuantisedTensor, Weight, fits_int4, plain

OUTPUTS = 32
"""Weights are padded to a multiple of so many outputs; inputs must be one of GROUP."""
_TYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
"""As the kernels number them."""


class _PaddedLinear:
    """What the three precisions share: the padding of outputs and the type of results.

    Weights are of the same inputs, and lie side by side in what results.
    """

    def __init__(self, weights: Sequence[Weight], bias: Tensor | None, wide: bool) -> None:
        self.outputs, self.inputs = sum(one.shape[0] for one in weights), weights[0].shape[1]
        self._padded = -(-self.outputs // OUTPUTS) * OUTPUTS
        self._bias = None if bias is None else _pad(bias.float(), self._padded)
        self._wide = wide

    def _new_weight(self, width: int, dtype: torch.dtype, padding: int = 0) -> Tensor:
        """To be packed: `width` numbers an output, those of the padding set."""
        weight = torch.empty(self._padded, width, dtype=dtype)
        weight[self.outputs // OUTPUTS * OUTPUTS :] = padding
        return weight

    def _new_result(self, count: int) -> Tensor:
        dtype = torch.float32 if self._wide else torch.bfloat16
        return new_rows(count, self._padded, dtype)

    def _cut(self, result: Tensor) -> Tensor:
        if self._padded == self.outputs:
            return result
        return result[:, : self.outputs].contiguous()


class CompiledBf16(_PaddedLinear):
    """bfloat16 weights and rows."""

    def __init__(self, weights: Sequence[Weight], bias: Tensor | None, wide: bool) -> None:
        super().__init__(weights, bias, wide)
        self._weight = self._new_weight(self.inputs, torch.bfloat16)
        for first, weight in _placed(weights):
            rows = _readable(plain(weight))
            kernels().pack_bf16(at(rows), _TYPES[rows.dtype], at(self._weight), first, *rows.shape)
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

    def __init__(self, weights: Sequence[Weight], bias: Tensor | None, wide: bool) -> None:
        super().__init__(weights, bias, wide)
        self._weight = self._new_weight(self.inputs, torch.uint8, 128)
        self._scales = torch.zeros(self._padded)
        for first, weight in _placed(weights):
            self._pack(first, weight)
        self.bytes = self._weight.nbytes + self._scales.nbytes

    def _pack(self, first: int, weight: Weight) -> None:
        if isinstance(weight, QuantisedTensor) and weight.scales.shape[1] == 1:
            values = weight.values.contiguous()
            kernels().place_int8(at(values), at(self._weight), first, *values.shape)
            self._scales[first : first + len(values)] = weight.scales[:, 0]
            return
        rows = _readable(plain(weight))
        kernels().pack_int8(
            at(rows), _TYPES[rows.dtype], at(self._weight), at(self._scales), first, *rows.shape
        )

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

    def __init__(self, weights: Sequence[Weight], bias: Tensor | None, wide: bool) -> None:
        super().__init__(weights, bias, wide)
        self._weight = self._new_weight(self.inputs // 2, torch.uint8, 0x88)
        self._scales = torch.zeros(self._padded, self.inputs // GROUP)
        for first, weight in _placed(weights):
            self._pack(first, weight)
        self.bytes = self._weight.nbytes + self._scales.nbytes

    def _pack(self, first: int, weight: Weight) -> None:
        to = at(self._weight), at(self._scales)
        if isinstance(weight, QuantisedTensor) and fits_int4(weight):
            values, scales = weight.values.contiguous(), weight.scales.contiguous()
            kernels().place_int4(at(values), at(scales), *to, first, *values.shape)
            return
        rows = _readable(plain(weight))
        kernels().pack_int4(at(rows), _TYPES[rows.dtype], *to, first, *rows.shape)

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


def _pad(bias: Tensor, outputs: int) -> Tensor:
    return functional.pad(bias, (0, outputs - len(bias)))


def _placed(weights: Sequence[Weight]) -> Iterator[tuple[int, Weight]]:
    """Each with the output that its first becomes."""
    first = 0
    for weight in weights:
        yield first, weight
        first += weight.shape[0]


def _readable(rows: Tensor) -> Tensor:
    """As the kernels can read them."""
    return (rows if rows.dtype in _TYPES else rows.float()).contiguous()
