"""A LLaMA-shaped decoder in plain torch, for training; serving it is `backends.llm`'s affair.

Its parameters are called as in a Hugging Face checkpoint, so that saving is only writing them.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, linear, rms_norm, scaled_dot_product_attention, silu


class Shape(NamedTuple):
    """How large the decoder is. Embedding and output share their weights."""

    vocabulary: int
    hidden: int = 192
    width: int = 512
    layers: int = 4
    heads: int = 6
    kv_heads: int = 2
    positions: int = 512
    theta: float = 10_000.0
    eps: float = 1e-5

    @property
    def head_dim(self) -> int:
        return self.hidden // self.heads


class Network(nn.Module):
    """Tokens int64 [batch, length] → logits [batch, length, vocabulary]."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.model = nn.Module()
        self.model.embed_tokens = _weight(shape.vocabulary, shape.hidden)
        self.model.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.model.norm = _scale(shape.hidden)
        cosines, sines = _turns(shape)
        self.register_buffer("cosines", cosines, persistent=False)
        self.register_buffer("sines", sines, persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        table, eps = self.model.embed_tokens.weight, self.shape.eps
        stream = embedding(tokens, table)
        length = tokens.shape[1]
        turn = self.cosines[:length], self.sines[:length]
        for layer in self.model.layers:
            stream = layer(stream, turn)
        return linear(_norm(stream, self.model.norm, eps), table)


class Layer(nn.Module):
    """Attention, then a gated inner layer; each adds to the stream."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        kv_width = shape.kv_heads * shape.head_dim
        self.input_layernorm = _scale(shape.hidden)
        self.post_attention_layernorm = _scale(shape.hidden)
        self.self_attn = nn.ModuleDict(
            {
                "q_proj": _weight(shape.hidden, shape.hidden),
                "k_proj": _weight(kv_width, shape.hidden),
                "v_proj": _weight(kv_width, shape.hidden),
                "o_proj": _weight(shape.hidden, shape.hidden, shape.layers),
            }
        )
        self.mlp = nn.ModuleDict(
            {
                "gate_proj": _weight(shape.width, shape.hidden),
                "up_proj": _weight(shape.width, shape.hidden),
                "down_proj": _weight(shape.hidden, shape.width, shape.layers),
            }
        )

    def forward(self, stream: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
        eps, mlp = self.shape.eps, self.mlp
        stream = stream + self._attend(_norm(stream, self.input_layernorm, eps), turn)
        rows = _norm(stream, self.post_attention_layernorm, eps)
        inner = silu(linear(rows, mlp["gate_proj"].weight)) * linear(rows, mlp["up_proj"].weight)
        return stream + linear(inner, mlp["down_proj"].weight)

    def _attend(self, rows: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
        shape, parts = self.shape, self.self_attn
        queries = _turned(_heads(linear(rows, parts["q_proj"].weight), shape.heads), turn)
        keys = _turned(_heads(linear(rows, parts["k_proj"].weight), shape.kv_heads), turn)
        values = _heads(linear(rows, parts["v_proj"].weight), shape.kv_heads)
        sharing = shape.heads // shape.kv_heads
        seen = scaled_dot_product_attention(
            queries,
            keys.repeat_interleave(sharing, 1),
            values.repeat_interleave(sharing, 1),
            is_causal=True,
        )
        return linear(seen.transpose(1, 2).flatten(2), parts["o_proj"].weight)


def _weight(outputs: int, inputs: int, layers: int = 0) -> nn.Module:
    """A bare weight; those that end in the stream start smaller, by the number of `layers`."""
    module = nn.Module()
    spread = 0.05 / (2 * layers) ** 0.5 if layers else 0.05
    module.weight = nn.Parameter(torch.randn(outputs, inputs) * spread)
    return module


def _scale(width: int) -> nn.Module:
    module = nn.Module()
    module.weight = nn.Parameter(torch.ones(width))
    return module


def _norm(rows: Tensor, scale: nn.Module, eps: float) -> Tensor:
    return rms_norm(rows, (rows.shape[-1],), scale.weight, eps)


def _heads(rows: Tensor, heads: int) -> Tensor:
    return rows.unflatten(2, (heads, -1)).transpose(1, 2)


def _turns(shape: Shape) -> tuple[Tensor, Tensor]:
    half = torch.arange(0, shape.head_dim, 2) / shape.head_dim
    angles = torch.outer(torch.arange(shape.positions).float(), shape.theta**-half)
    return torch.cat([angles, angles], 1).cos(), torch.cat([angles, angles], 1).sin()


def _turned(heads: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    first, second = heads.chunk(2, -1)
    return heads * turn[0] + torch.cat([-second, first], -1) * turn[1]
