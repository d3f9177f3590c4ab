"""The device operations on our CPU kernels; what they do not cover is left to plain torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from backends.llm.config.decoder import Activation, DecoderConfig
from backends.llm.errors import NoKernels
from backends.llm.kernels.library import at, kernels, new_rows
from backends.llm.ops.compiled_linears import CompiledBf16, CompiledInt4, CompiledInt8
from backends.llm.ops.linears import make_linear
from backends.llm.ops.quantise import GROUP, Weight, joined
from backends.llm.ops.reference import TorchOps
from backends.llm.ops.seam import AttentionSpec, CacheType, Linear, Precision, QueryKeySpec
from backends.llm.rows import ForwardBatch

_LINEARS: dict[Precision, type[CompiledBf16 | CompiledInt8 | CompiledInt4]] = {
    "bfloat16": CompiledBf16,
    "int8": CompiledInt8,
    "int4": CompiledInt4,
}


@dataclass(frozen=True, slots=True)
class BlockCache:
    """Keys and values of one layer, bfloat16 [blocks, numbers of one], in the layout of
    `kernels/avx512/attention.cpp`."""

    keys: Tensor
    values: Tensor

    @property
    def bytes(self) -> int:
        return self.keys.nbytes + self.values.nbytes

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """What it is made of, each with the blocks as first dimension."""
        return (self.keys, self.values)


@dataclass(frozen=True, slots=True)
class SpanPlan:
    """`spans`: int64 [S, 3], each span's first row, end row and context."""

    batch: ForwardBatch
    spans: Tensor


def pack_linear(
    weights: Sequence[Weight], bias: Tensor | None, precision: Precision, wide: bool = False
) -> Linear:
    """See `Ops.pack`; bfloat16 rows in and, unless `wide`, out."""
    if precision not in _LINEARS or weights[0].shape[1] % GROUP:
        return make_linear(joined(weights), bias, precision, torch.bfloat16, wide)
    return _LINEARS[precision](weights, bias, wide)


class CompiledOps(TorchOps):
    """Our kernels; attention is left to torch for an int8 cache or head sizes they do not cover."""

    name = "compiled"

    def __init__(
        self, config: DecoderConfig, block_tokens: int, cache_type: CacheType = "auto"
    ) -> None:
        """Raises NoKernels when they cannot be had on this machine, or cannot run the model."""
        super().__init__(config, torch.bfloat16, block_tokens)
        if config.hidden % GROUP:
            raise NoKernels(f"hidden_size {config.hidden} is not a multiple of {GROUP}")
        self._kernels = kernels()
        self._plain_attention = cache_type == "int8" or not _covers_heads(config)

    def pack(
        self,
        weights: Sequence[Weight],
        bias: Tensor | None,
        precision: Precision,
        wide: bool = False,
    ) -> Linear:
        return pack_linear(weights, bias, precision, wide)

    def add(self, stream: Tensor, delta: Tensor | None, scale: float) -> Tensor:
        return self._add_norm(stream, delta, scale, None, 0.0)

    def add_norm(
        self, stream: Tensor, delta: Tensor | None, scale: float, weight: Tensor, eps: float
    ) -> Tensor:
        return self._add_norm(stream, delta, scale, weight, eps)

    def norm(self, rows: Tensor, weight: Tensor, eps: float) -> Tensor:
        result = new_rows(len(rows), rows.shape[1])
        self._norm(rows, weight, result, eps)
        return result

    def gate(self, rows: Tensor, activation: Activation) -> Tensor:
        width = rows.shape[1] // 2
        if activation == "gelu" or width % 16:
            return super().gate(rows, activation)
        result = new_rows(len(rows), width)
        self._kernels.gate(at(rows), at(result), len(rows), width, activation == "gelu_tanh")
        return result

    def new_cache(self, config: DecoderConfig, blocks: int, kind: CacheType) -> list[Any]:
        if self._plain_attention:
            return super().new_cache(config, blocks, kind)
        shape = (blocks, self.block_tokens * config.kv_width)
        return [
            BlockCache(*(torch.zeros(shape, dtype=torch.bfloat16) for _ in range(2)))
            for _ in config.layers
        ]

    def plan(self, batch: ForwardBatch) -> Any:
        if self._plain_attention:
            return super().plan(batch)
        spans = [[place.first, place.last, place.context] for place in batch.places]
        return SpanPlan(batch, torch.tensor(spans))

    def store(self, qkv: Tensor, turn: QueryKeySpec, cache: Any, plan: Any, eps: float) -> Tensor:
        if self._plain_attention:
            return super().store(qkv, turn, cache, plan, eps)
        config = self.config
        q_norm, k_norm = turn.q_norm, turn.k_norm
        if turn.head_norm == "width" and q_norm is not None and k_norm is not None:
            self._norm(qkv[:, : config.q_width], q_norm, qkv[:, : config.q_width], eps)
            keys = qkv[:, config.q_width : config.q_width + config.kv_width]
            self._norm(keys, k_norm, keys, eps)
            q_norm = k_norm = None
        half = 0 if turn.cosines is None else turn.cosines.shape[1]
        self._kernels.store_kv(
            at(qkv), at(plan.batch.positions), at(plan.batch.slots), at(turn.cosines),
            at(turn.sines), half, at(q_norm), at(k_norm), eps, at(cache.keys), at(cache.values),
            len(qkv), config.heads, config.kv_heads, config.head_dim, self.block_tokens,
        )  # fmt: skip
        return qkv

    def attend(self, queries: Tensor, cache: Any, plan: Any, sight: AttentionSpec) -> Tensor:
        if self._plain_attention:
            return super().attend(queries, cache, plan, sight)
        config, tables = self.config, plan.batch.tables
        result = new_rows(len(queries), config.q_width)
        self._kernels.attend(
            at(queries), at(cache.keys), at(cache.values), at(result), at(plan.spans), at(tables),
            tables.shape[1], len(plan.spans), config.heads, config.kv_heads, config.head_dim,
            self.block_tokens, sight.window or 0, sight.scale, sight.cap or 0.0,
        )  # fmt: skip
        return result

    def _add_norm(
        self, stream: Tensor, delta: Tensor | None, scale: float, weight: Tensor | None, eps: float
    ) -> Tensor:
        count, width = stream.shape
        result = new_rows(count, width)
        self._kernels.add_norm(
            at(stream), at(delta), scale, at(weight), at(result), count, width, eps
        )
        return result

    def _norm(self, rows: Tensor, weight: Tensor, result: Tensor, eps: float) -> None:
        count, width = rows.shape
        self._kernels.norm(
            at(rows), rows.stride(0), at(weight), at(result), result.stride(0), count, width, eps
        )


def _covers_heads(config: DecoderConfig) -> bool:
    sharing = config.heads // config.kv_heads
    return config.head_dim % 16 == 0 and config.head_dim <= 512 and sharing <= 64
