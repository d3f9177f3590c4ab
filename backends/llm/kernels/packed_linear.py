"""A product with int4 weights as a Triton kernel: they are restored on their way, not before.

Importing this needs Triton; with TRITON_INTERPRET=1 the kernel runs on tensors of the CPU.
"""

import torch
import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, import-untyped, unused-ignore]
from torch import Tensor

from backends.llm.config.precision import GROUP

_NUMBERS = {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16}
_BYTES = 64
"""Of an output's weights that a program reads at a time: half as many as there are inputs."""


def multiply(
    rows: Tensor, weight: Tensor, scales: Tensor, bias: Tensor | None, dtype: torch.dtype
) -> Tensor:
    """[T, inputs] → [T, outputs] of `dtype`, with sums in float32.

    `weight`: uint8 [outputs, inputs / 2]; of each GROUP inputs, byte i has number i + 8 in its
    lower half, and in its upper half the one GROUP / 2 after it. `scales`: float32 [outputs,
    inputs / GROUP]. `bias`: float32 [outputs].
    """
    outputs, width = weight.shape
    result = torch.empty(len(rows), outputs, dtype=dtype, device=rows.device)
    together = 16 if len(rows) <= 16 else 64
    each = 32 if len(rows) <= 16 else 64
    # The interpreter knows no products of bfloat16.
    factors = torch.float32 if rows.device.type == "cpu" else rows.dtype
    _multiply[(triton.cdiv(len(rows), together), triton.cdiv(outputs, each))](
        rows, weight, scales, scales if bias is None else bias, result,
        len(rows), rows.stride(0), outputs,
        WIDTH=width, HALF=GROUP // 2, ROWS=together, OUTPUTS=each, BYTES=_BYTES,
        BIASED=bias is not None, NUMBER=_NUMBERS[factors],
        num_warps=4, num_stages=3, enable_fp_fusion=True,
    )  # fmt: skip
    return result


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _multiply(  # type: ignore[no-untyped-def]  # noqa: PLR0913
    rows, weight, scales, bias, result, count, row_stride, outputs,
    WIDTH: tl.constexpr, HALF: tl.constexpr, ROWS: tl.constexpr, OUTPUTS: tl.constexpr,
    BYTES: tl.constexpr, BIASED: tl.constexpr, NUMBER: tl.constexpr,
):  # fmt: skip
    """Program (rows, outputs): a tile of the result. The lower halves of bytes are one product,
    the upper ones another."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    output = tl.program_id(1) * OUTPUTS + tl.arange(0, OUTPUTS)
    wanted, there = row < count, output < outputs
    row_at, weight_at = row.to(tl.int64) * row_stride, output.to(tl.int64) * WIDTH
    total = tl.zeros([ROWS, OUTPUTS], tl.float32)
    for at in range(0, WIDTH, BYTES):
        byte = at + tl.arange(0, BYTES)
        inside = byte < WIDTH
        group = byte // HALF
        both = tl.load(
            weight + weight_at[None, :] + byte[:, None],
            mask=inside[:, None] & there[None, :],
            other=0,
        )
        scale = tl.load(
            scales + output.to(tl.int64)[None, :] * (WIDTH // HALF) + group[:, None],
            mask=inside[:, None] & there[None, :],
            other=0.0,
        )
        lower = ((both & 15).to(tl.float32) - 8.0) * scale
        upper = ((both >> 4).to(tl.float32) - 8.0) * scale
        inputs = rows + row_at[:, None] + (group * HALF + byte)[None, :]
        mask = wanted[:, None] & inside[None, :]
        first = tl.load(inputs, mask=mask, other=0.0).to(NUMBER)
        second = tl.load(inputs + HALF, mask=mask, other=0.0).to(NUMBER)
        total += tl.dot(first, lower.to(NUMBER), input_precision="ieee")
        total += tl.dot(second, upper.to(NUMBER), input_precision="ieee")
    if BIASED:
        total += tl.load(bias + output, mask=there, other=0.0)[None, :]
    tl.store(
        result + row.to(tl.int64)[:, None] * outputs + output[None, :],
        total.to(result.dtype.element_ty),
        mask=wanted[:, None] & there[None, :],
    )
