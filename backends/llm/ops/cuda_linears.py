"""Weights in layouts that torch multiplies with on a GPU, by precision.

They are quantised where they were read, because that takes several times a weight's memory, which
no ledger has granted on the GPU; what arrives there is what was planned.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from backends.llm.ops.linears import PlainLinear, finite_scales
from backends.llm.ops.quantise import GROUP, Weight, plain, quantise_int4, quantise_int8
from backends.llm.ops.seam import Linear, Precision

Multiply = Callable[[Tensor, Tensor, Tensor, Tensor | None, torch.dtype], Tensor]
_FEWEST_ROWS = 32
"""cuBLAS multiplies int8 by int8 for more than 16 rows; fewer are filled up to so many."""
_ALIGNED = 8
"""And for inputs and outputs that are multiples of this."""


class _CudaInt8Weights:
    """int8 weights with a scale per output, and the bias, on a device."""

    def __init__(
        self, weight: Weight, bias: Tensor | None, dtype: torch.dtype, device: torch.device
    ) -> None:
        values, scales = quantise_int8(weight)
        self._weight = values.to(device)
        self._scales = scales.squeeze(1).to(device)
        self._bias = None if bias is None else bias.to(device, torch.float32)
        self._dtype = dtype
        self.bytes = self._weight.nbytes + self._scales.nbytes


class CudaInt8Linear(_CudaInt8Weights):
    """int8 weights and rows, quantised with a scale each and multiplied whole."""

    def __call__(self, rows: Tensor) -> Tensor:
        exact = rows.float()
        row_scales = finite_scales(exact.abs().amax(1, keepdim=True), 127)
        whole = exact.div(row_scales).round_().to(torch.int8)  # float32 rows are the caller's
        missing = max(0, _FEWEST_ROWS - len(rows))
        if missing:
            whole = functional.pad(whole, (0, 0, 0, missing))
        products = torch._int_mm(whole, self._weight.t())[: len(rows)]
        result = products.float().mul_(row_scales).mul_(self._scales)
        return (result if self._bias is None else result.add_(self._bias)).to(self._dtype)


class Int8WeightLinear(_CudaInt8Weights):
    """int8 weights, restored to the rows' type while they are multiplied: for shapes that cuBLAS
    does not multiply whole."""

    def __call__(self, rows: Tensor) -> Tensor:
        # -127 to 127 are exact in bfloat16; the scales come after the product.
        result = functional.linear(rows, self._weight.to(rows.dtype)).float().mul_(self._scales)
        return (result if self._bias is None else result.add_(self._bias)).to(self._dtype)


class CudaInt4Linear:
    """int4 weights, two to a byte with a scale per GROUP inputs.

    `multiply`: the kernel of `backends.llm.kernels.packed_linear`, which says how they lie; without
    it they are restored to the rows' type before every product.
    """

    def __init__(
        self,
        weight: Weight,
        bias: Tensor | None,
        dtype: torch.dtype,
        device: torch.device,
        multiply: Multiply | None,
    ) -> None:
        values, scales = quantise_int4(weight)
        halves = (values + 8).to(torch.uint8).view(len(values), -1, 2, GROUP // 2)
        packed = halves[:, :, 0] | (halves[:, :, 1] << 4)
        self._multiply = multiply
        self._weight = packed.reshape(len(values), -1).to(device)
        self._scales = scales.contiguous().to(device)
        self._bias = None if bias is None else bias.to(device, torch.float32)
        self._dtype = dtype
        self.bytes = self._weight.nbytes + self._scales.nbytes

    def __call__(self, rows: Tensor) -> Tensor:
        if self._multiply is not None:
            return self._multiply(rows, self._weight, self._scales, self._bias, self._dtype)
        result = functional.linear(rows, self._restored(rows.dtype))
        if self._bias is not None:
            result = result.float().add_(self._bias)
        return result.to(self._dtype)

    def _restored(self, dtype: torch.dtype) -> Tensor:
        packed = self._weight.view(len(self._weight), -1, GROUP // 2)
        groups = torch.cat((packed & 15, packed >> 4), dim=-1).to(dtype).sub_(8)
        return groups.mul_(self._scales[..., None]).view(len(self._weight), -1)


def make_linear(
    weight: Weight,
    bias: Tensor | None,
    precision: Precision,
    dtype: torch.dtype,
    wide: bool,
    device: torch.device,
    *,
    multiply: Multiply | None,
) -> Linear:
    """The layout for a precision, on `device`; rows are of `dtype`, and results, or float32 if
    `wide` and made so anyway. int4 falls back to int8 where inputs do not fill its groups; see
    CudaInt4Linear for `multiply`."""
    given = torch.float32 if wide else dtype
    outputs, inputs = weight.shape
    if precision == "int4" and inputs % GROUP == 0:
        return CudaInt4Linear(weight, bias, given, device, multiply)
    if precision in ("int8", "int4"):
        aligned = outputs % _ALIGNED == 0 and inputs % _ALIGNED == 0
        return (CudaInt8Linear if aligned else Int8WeightLinear)(weight, bias, given, device)
    moved = None if bias is None else bias.to(device)
    return PlainLinear(plain(weight).to(device), moved, dtype)
