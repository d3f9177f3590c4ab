"""The seam between the decoder and a device: a dozen operations on packed rows.

`backends.llm.ops.reference` implements it in plain torch and is what others are checked against.
The residual stream is float32; what linears take and give is the device's compute type.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from backends.llm.config.decoder import Activation, DecoderConfig, HeadNorm
from backends.llm.config.precision import CacheType, Precision
from backends.llm.ops.quantise import Weight
from backends.llm.rows import ForwardBatch

__all__ = ["AttentionSpec", "CacheType", "Linear", "Ops", "Precision", "QueryKeySpec", "Weight"]


class Linear(Protocol):
    """A weight in the device's own layout. `bytes`: what it occupies."""

    bytes: int

    def __call__(self, rows: Tensor) -> Tensor:
        """[T, inputs] → [T, outputs], both in the compute type."""


@dataclass(frozen=True, slots=True)
class QueryKeySpec:
    """How queries and keys are prepared before they meet; norm weights are float32 or None.

    `cosines`, `sines`: float32 [positions, dims / 2]; None where the layer has no positions.
    """

    cosines: Tensor | None
    sines: Tensor | None
    head_norm: HeadNorm
    q_norm: Tensor | None
    k_norm: Tensor | None


@dataclass(frozen=True, slots=True)
class AttentionSpec:
    """What a row may see and how scores are made of it; see LayerConfig and DecoderConfig."""

    window: int | None
    scale: float
    cap: float | None


class Ops(Protocol):
    """One device, where all tensors lie but the weights that `pack` and `table` are given. Not
    shared between threads."""

    name: str
    block_tokens: int
    device: torch.device
    replays: bool
    """Whether a step of single rows may be recorded once and replayed: see `llm.graphs`."""

    def place(self, batch: ForwardBatch) -> ForwardBatch:
        """A batch with its tensors on the device."""

    def pack(
        self,
        weights: Sequence[Weight],
        bias: Tensor | None,
        precision: Precision,
        wide: bool = False,
    ) -> Linear:
        """Copy weights [outputs, inputs] of the same inputs, one after the other, into the device's
        layout: nothing of them is kept, so they may lie in a mapped file. One that is stored in
        the bits of `precision` is taken as it is.

        `wide`: results are wanted in float32 where the device has them so (logits: in bfloat16
        the likeliest tokens are often equal).
        """

    def table(self, weight: Tensor) -> Tensor:
        """Take the embedding table [vocabulary, hidden]."""

    def embed(self, table: Tensor, tokens: Tensor, scale: float) -> Tensor:
        """The residual stream's first value, float32 [T, hidden]."""

    def add(self, stream: Tensor, delta: Tensor | None, scale: float) -> Tensor:
        """stream += delta * scale, in place; the stream in the compute type."""

    def add_norm(
        self, stream: Tensor, delta: Tensor | None, scale: float, weight: Tensor, eps: float
    ) -> Tensor:
        """stream += delta * scale, in place; its RMS norm in the compute type."""

    def norm(self, rows: Tensor, weight: Tensor, eps: float) -> Tensor:
        """The RMS norm of what a half of a layer gave."""

    def gate(self, rows: Tensor, activation: Activation) -> Tensor:
        """[T, 2 width] → [T, width]: activation(first half) * second half."""

    def new_cache(self, config: DecoderConfig, blocks: int, kind: CacheType) -> list[Any]:
        """Keys and values of `blocks` blocks for each layer; opaque, but each has `bytes`, and
        `tensors`, the memory it is made of with the blocks as first dimension."""

    def clear(self, cache: Any, blocks: Sequence[int]) -> None:
        """Zero the keys and values of `blocks` in one layer."""

    def plan(self, batch: ForwardBatch) -> Any:
        """What attention needs to know of a batch, once for all layers; opaque."""

    def store(self, qkv: Tensor, turn: QueryKeySpec, cache: Any, plan: Any, eps: float) -> Tensor:
        """Norm and rotate queries and keys, write keys and values to the cache; the queries, for
        `attend` of the same implementation alone ([T, heads * head_dim], or more columns)."""

    def attend(self, queries: Tensor, cache: Any, plan: Any, sight: AttentionSpec) -> Tensor:
        """Attention of what `store` returned over the cache; [T, heads * head_dim] in the compute
        type."""
