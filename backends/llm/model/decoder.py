"""One decoder for every supported family: packed rows in, logits out.

Comes from the engine's loop with a Batch; every difference between families is a field of the
config, and everything that computes is an operation of the device.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from backends.llm.config.decoder import DecoderConfig, LayerConfig, RopeConfig
from backends.llm.model.experts import mix
from backends.llm.model.rope import rope_tables
from backends.llm.ops.seam import AttentionSpec, CacheType, Ops, QueryKeySpec
from backends.llm.pages import can_discard, discard
from backends.llm.rows import ForwardBatch
from backends.llm.weights.stream import DecoderWeights, Dense, Layer


class Decoder:
    """A model with its key-value cache of `blocks` blocks, for sequences up to `context` tokens."""

    def __init__(
        self,
        config: DecoderConfig,
        weights: DecoderWeights,
        ops: Ops,
        context: int,
        blocks: int,
        cache_type: CacheType = "auto",
    ) -> None:
        self.config = config
        self.ops = ops
        self._weights = weights
        self._cache = ops.new_cache(config, blocks, cache_type)
        ropes = {layer.rope for layer in config.layers if layer.rope is not None}
        tables = {rope: _on(ops.device, rope_tables(rope, context)) for rope in ropes}
        self._turns = [
            _turn(config, layer, weight, tables)
            for layer, weight in zip(config.layers, weights.layers, strict=True)
        ]

    @torch.inference_mode()
    def forward(self, batch: ForwardBatch) -> Tensor:
        """Compute a batch, writing its keys and values; float32 logits [logit rows, vocabulary] on
        the device, good until the next call."""
        return self._logits(self._last_rows(batch))

    @torch.inference_mode()
    def hidden(self, batch: ForwardBatch) -> Tensor:
        """The same up to the head: float32 rows of the last layer [logit rows, hidden], on the
        device."""
        return self._last_rows(batch).float()

    def _last_rows(self, batch: ForwardBatch) -> Tensor:
        batch = self.ops.place(batch)
        stream, delta = self._through_layers(batch)
        rows = batch.logit_rows
        if len(rows) != len(stream):
            stream, delta = stream[rows], delta[rows]
        config, ops = self.config, self.ops
        scale = config.residual_scale
        return ops.add_norm(stream, delta, scale, self._weights.norm, config.eps)

    def clear(self, blocks: Sequence[int]) -> None:
        """Zero blocks that may hold what is not a number: even masked, it would spoil whoever
        gets them next, because 0 times it is not 0."""
        for cache in self._cache:
            self.ops.clear(cache, blocks)

    def discard(self, blocks: Sequence[int]) -> int:
        """Give the memory of blocks nobody uses back to the system; bytes that went."""
        if not self.gives_back:
            return 0
        return sum(discard(cache.tensors, blocks) for cache in self._cache)

    @property
    def gives_back(self) -> bool:
        """Whether `discard` can do anything here."""
        return can_discard(self.ops.device)

    @property
    def cache_bytes(self) -> int:
        return sum(cache.bytes for cache in self._cache)

    def _through_layers(self, batch: ForwardBatch) -> tuple[Tensor, Tensor]:
        """The residual stream, and what the last half layer is still to add to it."""
        config, ops = self.config, self.ops
        plan = ops.plan(batch)
        stream = ops.embed(self._weights.embedding, batch.tokens, config.embedding_scale)
        delta: Tensor | None = None
        for index, weights in enumerate(self._weights.layers):
            rows = self._enter(stream, delta, weights.before_attention)
            delta = self._attention(index, rows, plan)
            delta = self._leave(delta, weights.after_attention)
            rows = self._enter(stream, delta, weights.before_mlp)
            delta = self._leave(self._mlp(index, rows), weights.after_mlp)
        assert delta is not None, "a decoder has at least one layer. This is a bug."
        return stream, delta

    def _enter(self, stream: Tensor, delta: Tensor | None, weight: Tensor | None) -> Tensor:
        scale = self.config.residual_scale
        if weight is None:
            return self.ops.add(stream, delta, scale)
        return self.ops.add_norm(stream, delta, scale, weight, self.config.eps)

    def _leave(self, delta: Tensor, weight: Tensor | None) -> Tensor:
        return delta if weight is None else self.ops.norm(delta, weight, self.config.eps)

    def _attention(self, index: int, rows: Tensor, plan: Any) -> Tensor:
        config, layer, weights = self.config, self.config.layers[index], self._weights.layers[index]
        cache = self._cache[index]
        queries = self.ops.store(weights.qkv(rows), self._turns[index], cache, plan, config.eps)
        sight = AttentionSpec(layer.window, config.attention_scale, config.attention_cap)
        return weights.output(self.ops.attend(queries, cache, plan, sight))

    def _mlp(self, index: int, rows: Tensor) -> Tensor:
        mlp, experts = self._weights.layers[index].mlp, self.config.layers[index].experts
        if isinstance(mlp, Dense):
            return self._dense(mlp, rows)
        assert experts is not None, "a layer with experts has their config. This is a bug."
        return mix(mlp, experts, rows, self._dense)

    def _dense(self, mlp: Dense, rows: Tensor) -> Tensor:
        return mlp.down(self.ops.gate(mlp.gate_up(rows), self.config.activation))

    def _logits(self, rows: Tensor) -> Tensor:
        head = self._weights.head
        assert head is not None, "a decoder without a head gives no logits. This is a bug."
        logits = head(rows).float()
        if self.config.logit_scale != 1.0:
            logits *= self.config.logit_scale
        cap = self.config.logit_cap
        return logits if cap is None else torch.tanh(logits / cap) * cap


def _on(device: torch.device, tables: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    cosines, sines = tables
    return cosines.to(device), sines.to(device)


def _turn(
    config: DecoderConfig,
    layer: LayerConfig,
    weights: Layer,
    tables: dict[RopeConfig, tuple[Tensor, Tensor]],
) -> QueryKeySpec:
    cosines, sines = (None, None) if layer.rope is None else tables[layer.rope]
    return QueryKeySpec(cosines, sines, config.head_norm, weights.q_norm, weights.k_norm)
