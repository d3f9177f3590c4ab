"""A BERT-like encoder over packed texts: every token sees its whole text, and no other one.

Comes from the embedder with lists of tokens; gives their rows of the last layer.
"""

from collections.abc import Sequence
from itertools import accumulate, pairwise

import torch
from torch import Tensor
from torch.nn import functional

from backends.llm.config.encoder import EncoderConfig
from backends.llm.weights.encoder_weights import EncoderLayer, EncoderWeights, LayerNorm


class Encoder:
    """Weights that compute in `dtype`; the residual stream and the norms are float32."""

    def __init__(self, config: EncoderConfig, weights: EncoderWeights, dtype: torch.dtype) -> None:
        self._config = config
        self._weights = weights
        self._dtype = dtype

    @torch.inference_mode()
    def forward(self, texts: Sequence[Sequence[int]]) -> list[Tensor]:
        """float32 [tokens, hidden] for each text, none of which is empty."""
        lengths = [len(text) for text in texts]
        stream = self._embed(texts, lengths)
        for layer in self._weights.layers:
            mixed = layer.output(self._attend(layer, stream, lengths))
            stream = self._add_norm(stream, mixed, layer.after_attention)
            wide = self._activate(layer.up(stream.to(self._dtype)))
            stream = self._add_norm(stream, layer.down(wide), layer.after_mlp)
        return list(torch.split(stream, lengths))

    def _embed(self, texts: Sequence[Sequence[int]], lengths: Sequence[int]) -> Tensor:
        tokens = torch.tensor([token for text in texts for token in text])
        positions = torch.cat([torch.arange(length) for length in lengths])
        stream = self._weights.words[tokens].float() + self._weights.positions[positions]
        return self._norm(stream, self._weights.norm)

    def _attend(self, layer: EncoderLayer, stream: Tensor, lengths: Sequence[int]) -> Tensor:
        config = self._config
        # [3, heads, tokens, head_dim]
        qkv = layer.qkv(stream.to(self._dtype)).view(len(stream), 3, config.heads, config.head_dim)
        queries, keys, values = qkv.permute(1, 2, 0, 3)
        mixed = torch.empty(len(stream), config.heads, config.head_dim, dtype=qkv.dtype)
        for first, end in pairwise(accumulate(lengths, initial=0)):
            parts = (part[None, :, first:end] for part in (queries, keys, values))
            mixed[first:end] = functional.scaled_dot_product_attention(*parts)[0].transpose(0, 1)
        return mixed.flatten(1)

    def _activate(self, rows: Tensor) -> Tensor:
        match self._config.activation:
            case "relu":
                return functional.relu(rows)
            case "gelu":
                return functional.gelu(rows)
            case "gelu_tanh":
                return functional.gelu(rows, approximate="tanh")

    def _add_norm(self, stream: Tensor, delta: Tensor, norm: LayerNorm) -> Tensor:
        return self._norm(stream + delta.float(), norm)

    def _norm(self, rows: Tensor, norm: LayerNorm) -> Tensor:
        return functional.layer_norm(rows, rows.shape[1:], norm.weight, norm.bias, self._config.eps)
