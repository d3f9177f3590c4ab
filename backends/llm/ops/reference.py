"""The device operations in plain torch: the fallback everywhere, and what kernels are held to."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from backends.llm.config.decoder import Activation, DecoderConfig, HeadNorm
from backends.llm.ops.linears import make_linear
from backends.llm.ops.quantise import Weight, joined
from backends.llm.ops.seam import AttentionSpec, CacheType, Linear, Precision, QueryKeySpec
from backends.llm.ops.torch_attention import Angles, AttentionPlan, attend, plan_attention
from backends.llm.ops.torch_cache import Int8Cache, PlainCache, TorchCache
from backends.llm.rows import ForwardBatch

CPU = torch.device("cpu")


class TorchOps:
    """Plain torch; see `backends.llm.ops.seam.Ops`.

    `dtype`: of the embedding table, and of queries, keys and values. `between`: of the rows that
    linears take and give; None for the same. int8 linears compute their results in float32, and
    changing the type back and forth between them costs as much as the norms.
    """

    name = "torch"
    replays = False

    def __init__(
        self,
        config: DecoderConfig,
        dtype: torch.dtype,
        block_tokens: int,
        between: torch.dtype | None = None,
        device: torch.device = CPU,
    ) -> None:
        self.config = config
        self.dtype = dtype
        self.block_tokens = block_tokens
        self.device = device
        self._between = dtype if between is None else between

    def place(self, batch: ForwardBatch) -> ForwardBatch:
        return batch.to(self.device)

    def pack(
        self,
        weights: Sequence[Weight],
        bias: Tensor | None,
        precision: Precision,
        wide: bool = False,
    ) -> Linear:
        return make_linear(joined(weights), bias, precision, self._between, wide)

    def table(self, weight: Tensor) -> Tensor:
        return weight.to(self.device, self.dtype).contiguous()

    def embed(self, table: Tensor, tokens: Tensor, scale: float) -> Tensor:
        return table[tokens].float().mul_(scale)

    def add(self, stream: Tensor, delta: Tensor | None, scale: float) -> Tensor:
        if delta is not None:
            stream.add_(delta.float(), alpha=scale)
        # A copy: what comes after must not write into the stream.
        return stream.to(self._between, copy=True)

    def add_norm(
        self, stream: Tensor, delta: Tensor | None, scale: float, weight: Tensor, eps: float
    ) -> Tensor:
        if delta is not None:
            stream.add_(delta.float(), alpha=scale)
        return self.norm(stream, weight, eps)

    def norm(self, rows: Tensor, weight: Tensor, eps: float) -> Tensor:
        return functional.rms_norm(rows.float(), weight.shape, weight, eps).to(self._between)

    def gate(self, rows: Tensor, activation: Activation) -> Tensor:
        gate, up = rows.chunk(2, dim=-1)
        if activation == "silu":
            return functional.silu(gate).mul_(up)
        approximate = "tanh" if activation == "gelu_tanh" else "none"
        return functional.gelu(gate, approximate=approximate).mul_(up)

    def new_cache(self, config: DecoderConfig, blocks: int, kind: CacheType) -> list[Any]:
        make = Int8Cache if kind == "int8" else PlainCache
        shape = (blocks, config.kv_heads, self.block_tokens, config.head_dim)
        return [make(shape, self.dtype, self.device) for _ in config.layers]

    def clear(self, cache: TorchCache, blocks: Sequence[int]) -> None:
        for numbers in cache.tensors:
            numbers[list(blocks)] = 0

    def plan(self, batch: ForwardBatch) -> AttentionPlan:
        return plan_attention(batch, self.block_tokens, self.config.kv_heads)

    def store(
        self, qkv: Tensor, turn: QueryKeySpec, cache: TorchCache, plan: AttentionPlan, eps: float
    ) -> Tensor:
        q_width, kv_width = self.config.q_width, self.config.kv_width
        both, values = torch.split(qkv, [q_width + kv_width, kv_width], dim=-1)
        turned = _turn(self._normed(both, turn, eps), plan.angles(turn)).to(self.dtype)
        queries, keys = torch.split(turned, [self.config.heads, self.config.kv_heads], dim=1)
        cache.write(plan.slots, keys, self._heads(values))
        return queries.flatten(1)

    def attend(
        self, queries: Tensor, cache: TorchCache, plan: AttentionPlan, sight: AttentionSpec
    ) -> Tensor:
        return attend(self._heads(queries), cache, plan, sight).flatten(1)

    def _heads(self, rows: Tensor) -> Tensor:
        return rows.reshape(len(rows), -1, self.config.head_dim)

    def _normed(self, both: Tensor, turn: QueryKeySpec, eps: float) -> Tensor:
        """Queries and keys, float32 [T, heads + kv_heads, head_dim]."""
        if turn.q_norm is None or turn.k_norm is None:
            return self._heads(both).float()
        queries, keys = torch.split(both, [self.config.q_width, self.config.kv_width], dim=-1)
        parts = (self._norm_heads(queries, turn.q_norm, eps, turn.head_norm),
                 self._norm_heads(keys, turn.k_norm, eps, turn.head_norm))  # fmt: skip
        return torch.cat(parts, dim=1)

    def _norm_heads(self, rows: Tensor, weight: Tensor, eps: float, kind: HeadNorm) -> Tensor:
        """A norm over the whole width comes before the split into heads."""
        shaped = rows if kind == "width" else self._heads(rows)
        return self._heads(functional.rms_norm(shaped.float(), weight.shape, weight, eps))


def _turn(heads: Tensor, angles: Angles | None) -> Tensor:
    """float32 [T, heads, head_dim], each pair of dimensions turned by its angle."""
    if angles is None:
        return heads
    if angles.dims == heads.shape[-1]:
        # Half as many calls as the pairs taken apart, at the same exactness.
        return heads.roll(angles.dims // 2, -1).mul_(angles.sines).add_(heads * angles.cosines)
    turning, rest = torch.split(heads, [angles.dims, heads.shape[-1] - angles.dims], dim=-1)
    return torch.cat((_turn(turning, angles), rest), dim=-1)
