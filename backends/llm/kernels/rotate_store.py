"""Queries and keys normed and turned, keys and values written to the cache: one Triton kernel.

Importing this needs Triton; with TRITON_INTERPRET=1 the kernel runs on tensors of the CPU.
"""

import torch
import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, import-untyped, unused-ignore]
from torch import Tensor

from backends.llm.kernels.paged_rows import Pages, RotateSpec


def store(qkv: Tensor, spec: RotateSpec, positions: Tensor, slots: Tensor, pages: Pages) -> Tensor:
    """The queries [T, heads * head_dim], in the pages' type; see `backends.llm.ops.seam.Ops.store`.

    `qkv`: [T, (heads + 2 kv_heads) * head_dim]. `positions`, `slots`: whole numbers [T]. `pages`:
    without scales.
    """
    _, kv_heads, block_tokens, head_dim = pages.keys.shape
    heads = qkv.shape[1] // head_dim - 2 * kv_heads
    queries = torch.empty(len(qkv), heads * head_dim, dtype=pages.keys.dtype, device=qkv.device)
    turns, normed = spec.cosines is not None, spec.q_norm is not None
    _store[(len(qkv), heads + 2 * kv_heads)](
        qkv, qkv.stride(0), positions, slots,
        spec.cosines if turns else positions, spec.sines if turns else positions,
        spec.q_norm if normed else positions, spec.k_norm if normed else positions, spec.eps,
        queries, pages.keys, pages.values,
        HEADS=heads, KV_HEADS=kv_heads, HEAD_DIM=head_dim, BLOCK_TOKENS=block_tokens,
        HALF=spec.cosines.shape[1] if spec.cosines is not None else 1,
        DIMS=triton.next_power_of_2(head_dim), TURNS=turns, NORMED=normed, num_warps=1,
    )  # fmt: skip
    return queries


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _store(  # type: ignore[no-untyped-def]  # noqa: PLR0913
    qkv, row_stride, positions, slots, cosines, sines, q_norm, k_norm, eps,
    queries, keys, values,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr,
    BLOCK_TOKENS: tl.constexpr, HALF: tl.constexpr, DIMS: tl.constexpr,
    TURNS: tl.constexpr, NORMED: tl.constexpr,
):  # fmt: skip
    """Program (row, head of queries, keys or values)."""
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    dims = tl.arange(0, DIMS)
    inside = dims < HEAD_DIM
    at = qkv + row * row_stride + head * HEAD_DIM
    own = tl.load(at + dims, mask=inside, other=0.0).to(tl.float32)
    slot = tl.load(slots + row).to(tl.int64)
    block, offset = slot // BLOCK_TOKENS, slot % BLOCK_TOKENS
    if head >= HEADS + KV_HEADS:
        place = (block * KV_HEADS + head - HEADS - KV_HEADS) * BLOCK_TOKENS + offset
        tl.store(values + place * HEAD_DIM + dims, own.to(values.dtype.element_ty), mask=inside)
        return
    # Each dimension is turned with the one half of the turning ones away.
    other = tl.where(dims < HALF, dims + HALF, tl.where(dims < 2 * HALF, dims - HALF, dims))
    if TURNS:
        partner = tl.load(at + other, mask=inside, other=0.0).to(tl.float32)
    if NORMED:
        factor = 1.0 / tl.sqrt(tl.sum(own * own, 0) / HEAD_DIM + eps)
        weight = q_norm if head < HEADS else k_norm
        own = own * factor * tl.load(weight + dims, mask=inside, other=0.0)
        if TURNS:
            partner = partner * factor * tl.load(weight + other, mask=inside, other=0.0)
    if TURNS:
        angle = tl.load(positions + row).to(tl.int64) * HALF + dims % HALF
        turning = dims < 2 * HALF
        cosine = tl.load(cosines + angle, mask=turning, other=1.0)
        sine = tl.load(sines + angle, mask=turning, other=0.0)
        own = own * cosine + partner * tl.where(dims < HALF, -sine, sine)
    if head < HEADS:
        place = (row * HEADS + head) * HEAD_DIM
        tl.store(queries + place + dims, own.to(queries.dtype.element_ty), mask=inside)
    else:
        place = (block * KV_HEADS + head - HEADS) * BLOCK_TOKENS + offset
        tl.store(keys + place * HEAD_DIM + dims, own.to(keys.dtype.element_ty), mask=inside)
