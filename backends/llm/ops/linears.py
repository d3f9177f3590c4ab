"""Weights in the layouts that torch's own CPU kernels want, by precision."""

from functools import cache

import torch
from torch import Tensor
from torch.nn import functional

from backends.llm.kernels.compile import cpu_flags
from backends.llm.ops.quantise import GROUP, Weight, plain, quantise_int4, quantise_int8
from backends.llm.ops.seam import Linear, Precision

RESTORED_BYTES = 2**21
"""Of float32 weights that exist at a time: they stay in a core's cache."""


class PlainLinear:
    """float32 or bfloat16, as torch's linear takes it."""

    def __init__(self, weight: Weight, bias: Tensor | None, dtype: torch.dtype) -> None:
        self._weight = plain(weight).to(dtype).contiguous()
        self._bias = None if bias is None else bias.to(dtype)
        self.bytes = self._weight.nbytes

    def __call__(self, rows: Tensor) -> Tensor:
        return functional.linear(rows, self._weight, self._bias)


class ReorderedLinear:
    """bfloat16 in oneDNN's blocked layout: 1.4 times the speed of the plain one at 32 rows."""

    def __init__(self, weight: Weight, bias: Tensor | None) -> None:
        exact = plain(weight).to(torch.bfloat16).contiguous()
        self._weight = torch.ops.mkldnn._reorder_linear_weight(exact, None)
        self._bias = None if bias is None else bias.to(torch.bfloat16)
        self.bytes = exact.nbytes

    def __call__(self, rows: Tensor) -> Tensor:
        pointwise = torch.ops.mkldnn._linear_pointwise
        result: Tensor = pointwise(rows, self._weight, self._bias, "none", [], "")
        return result


class RestoredLinear:
    """bfloat16 weights, restored to float32 some outputs at a time while they are multiplied: for
    CPUs on which torch multiplies bfloat16 number by number, several times as slowly."""

    def __init__(self, weight: Weight, bias: Tensor | None) -> None:
        self._weight = plain(weight).to(torch.bfloat16).contiguous()
        self._bias = None if bias is None else bias.float()
        self._step = max(1, RESTORED_BYTES // (4 * weight.shape[1]))
        self.bytes = self._weight.nbytes

    def __call__(self, rows: Tensor) -> Tensor:
        exact = rows.float()
        outputs = len(self._weight)
        result = torch.empty(len(rows), outputs)
        for first in range(0, outputs, self._step):
            part = slice(first, first + self._step)
            torch.mm(exact, self._weight[part].float().t(), out=result[:, part])
        if self._bias is not None:
            result += self._bias
        return result.to(rows.dtype)


class Int8Linear:
    """int8 weights; the input is quantised to int8 with a scale per row, then multiplied whole.

    To 7 bits where the CPU lacks VNNI: oneDNN adds two products up in 16 bits there, and what does
    not fit is cut off.
    """

    def __init__(self, weight: Weight, bias: Tensor | None, dtype: torch.dtype) -> None:
        values, scales = quantise_int8(weight)
        self._weight = torch.ops.onednn.qlinear_prepack(values.contiguous(), None)
        self._scales = scales.squeeze(1).contiguous()
        self._zeros = torch.zeros(len(values), dtype=torch.int64)
        self._bias = None if bias is None else bias.float()
        self._dtype = dtype
        self._most = 127 if adds_bytes_in_32_bits() else 63
        self.bytes = values.nbytes + scales.nbytes

    def __call__(self, rows: Tensor) -> Tensor:
        # oneDNN knows one scale for all rows; with 1 for it, each row's own can be applied after.
        row_scales = finite_scales(rows.abs().amax(1, keepdim=True).float(), self._most)
        # By way of int8, because torch turns floats into uint8 one by one (eight times as slow).
        whole = rows.div(row_scales).round_().to(torch.int8)
        zero = self._most + 1
        shifted = whole.view(torch.uint8).add_(zero)  # around, where it is negative
        result: Tensor = torch.ops.onednn.qlinear_pointwise(
            shifted, 1.0, zero, self._weight, self._scales, self._zeros, None,
            1.0, 0, torch.float32, "none", [], "",
        )  # fmt: skip
        result.mul_(row_scales)
        return (result if self._bias is None else result.add_(self._bias)).to(self._dtype)


class Int4Linear:
    """int4 weights, two to a byte, restored to bfloat16 while they are multiplied."""

    def __init__(self, weight: Weight, bias: Tensor | None, dtype: torch.dtype) -> None:
        values, scales = quantise_int4(weight)
        self._outputs = len(values)
        padding = -len(values) % 16
        shifted = functional.pad(values.int() + 8, (0, 0, 0, padding), value=8)
        self._weight = torch.ops.aten._convert_weight_to_int4pack_for_cpu(shifted, 1)
        scales = functional.pad(scales, (0, 0, 0, padding), value=1.0).t()
        zeros = torch.zeros_like(scales)
        self._scales = torch.stack([scales, zeros], dim=-1).to(torch.bfloat16).contiguous()
        self._bias = None if bias is None else bias.to(torch.bfloat16)
        self._dtype = dtype
        self.bytes = self._weight.nbytes + self._scales.nbytes

    def __call__(self, rows: Tensor) -> Tensor:
        multiply = torch.ops.aten._weight_int4pack_mm_for_cpu
        result: Tensor = multiply(rows.to(torch.bfloat16), self._weight, GROUP, self._scales)
        result = result[:, : self._outputs]
        return (result if self._bias is None else result + self._bias).to(self._dtype)


def finite_scales(largest: Tensor, most: int) -> Tensor:
    """Scales of rows with these largest numbers, for whole numbers up to `most`; NaN, which makes
    the row's result NaN, where the largest is not finite."""
    scales = largest.clamp_min(1e-30).div_(most)
    return scales.add_(scales - scales)  # NaN for infinity as well


def make_linear(
    weight: Weight, bias: Tensor | None, precision: Precision, dtype: torch.dtype, wide: bool
) -> Linear:
    """The layout for a precision; int4 falls back to int8 where inputs do not fill its groups."""
    if precision == "int4" and weight.shape[1] % GROUP == 0:
        return Int4Linear(weight, bias, dtype)
    if precision in ("int8", "int4"):
        return Int8Linear(weight, bias, torch.float32 if wide else dtype)
    if dtype is torch.bfloat16 and multiplies_bfloat16():
        return ReorderedLinear(weight, bias)
    if dtype is torch.bfloat16:
        return RestoredLinear(weight, bias)
    return PlainLinear(weight, bias, dtype)


@cache
def adds_bytes_in_32_bits() -> bool:
    """Whether this CPU has VNNI: products of bytes are added up in 32 bits, where they fit."""
    return not {"avx512_vnni", "avx_vnni"}.isdisjoint(cpu_flags())


@cache
def multiplies_bfloat16() -> bool:
    """Whether this build of torch and this CPU multiply bfloat16 through oneDNN."""
    return bool(torch._C._has_mkldnn and torch.ops.mkldnn._is_mkldnn_bf16_supported())
