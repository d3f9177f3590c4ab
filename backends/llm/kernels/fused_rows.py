"""What a decoder does between its products, as Triton kernels: each in one pass over its rows.

A step of few rows takes as long as its operations are many; in plain torch these are three to eight
each. Importing this needs Triton; with TRITON_INTERPRET=1 the kernels run on tensors of the CPU.
"""

import torch
import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, import-untyped, unused-ignore]
from torch import Tensor

_GATE_WIDTH = 1024
WIDEST = 16_384
"""Numbers of a row that one program holds."""


def add_norm(
    stream: Tensor,
    delta: Tensor | None,
    scale: float,
    weight: Tensor,
    eps: float,
    dtype: torch.dtype,
) -> Tensor:
    """See `backends.llm.ops.seam.Ops.add_norm`: float32 `stream` and `weight`, the norm in
    `dtype`. Rows are at most WIDEST numbers wide; they may lie apart, their numbers side by
    side."""
    count, width = stream.shape
    added = stream if delta is None else delta
    result = torch.empty(count, width, dtype=dtype, device=stream.device)
    block = triton.next_power_of_2(width)
    _add_norm[(count,)](
        stream, stream.stride(0), added, added.stride(0), weight, result, scale, eps,
        WIDTH=width, BLOCK=block, ADDS=delta is not None,
        num_warps=max(1, min(16, block // 256)),
    )  # fmt: skip
    return result


def gate(rows: Tensor, activation: str) -> Tensor:
    """[T, 2 width] → [T, width]: silu or gelu_tanh of the first half, times the second."""
    count, width = len(rows), rows.shape[1] // 2
    result = torch.empty(count, width, dtype=rows.dtype, device=rows.device)
    _gate[(count, triton.cdiv(width, _GATE_WIDTH))](
        rows, rows.stride(0), result, WIDTH=width, BLOCK=_GATE_WIDTH, SILU=activation == "silu",
        num_warps=4,
    )  # fmt: skip
    return result


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _add_norm(  # type: ignore[no-untyped-def]  # noqa: PLR0913
    stream, stream_stride, delta, delta_stride, weight, result, scale, eps,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, ADDS: tl.constexpr,
):  # fmt: skip
    """Program (row)."""
    at = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < WIDTH
    place = stream + at * stream_stride + column
    row = tl.load(place, mask=inside, other=0.0)
    if ADDS:
        more = tl.load(delta + at * delta_stride + column, mask=inside, other=0.0)
        row += more.to(tl.float32) * scale
        tl.store(place, row, mask=inside)
    factor = 1.0 / tl.sqrt(tl.sum(row * row, 0) / WIDTH + eps)
    normed = row * factor * tl.load(weight + column, mask=inside, other=0.0)
    tl.store(result + at * WIDTH + column, normed.to(result.dtype.element_ty), mask=inside)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _gate(  # type: ignore[no-untyped-def]
    rows, row_stride, result, WIDTH: tl.constexpr, BLOCK: tl.constexpr, SILU: tl.constexpr
):
    """Program (row, part of it)."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < WIDTH
    at = rows + row * row_stride + column
    first = tl.load(at, mask=inside, other=0.0).to(tl.float32)
    second = tl.load(at + WIDTH, mask=inside, other=0.0).to(tl.float32)
    inner = first
    if not SILU:  # of the two, x * sigmoid(2 u) is 0.5 x (1 + tanh(u))
        inner = 1.5957691216057308 * (first + 0.044715 * first * first * first)
    active = first / (1.0 + tl.exp(tl.minimum(-inner, 80.0)))
    product = (active * second).to(result.dtype.element_ty)
    tl.store(result + row * WIDTH + column, product, mask=inside)
