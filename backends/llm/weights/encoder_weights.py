"""An encoder's weights, by the names of its family, read from a checkpoint into linears."""

from dataclasses import dataclass

import torch
from torch import Tensor

from backends.llm.config.encoder import EncoderConfig
from backends.llm.errors import BadCheckpoint
from backends.llm.ops.choose import Pack
from backends.llm.ops.seam import Linear
from backends.llm.weights.checkpoint import Checkpoint


@dataclass(frozen=True, slots=True)
class LayerNorm:
    weight: Tensor
    bias: Tensor


@dataclass(frozen=True, slots=True)
class EncoderLayer:
    """`qkv` gives queries, keys and values side by side."""

    qkv: Linear
    output: Linear
    after_attention: LayerNorm
    up: Linear
    down: Linear
    after_mlp: LayerNorm


@dataclass(frozen=True, slots=True)
class EncoderWeights:
    """`words` [vocabulary, hidden]; `positions` [positions, hidden], the token type's row added."""

    words: Tensor
    positions: Tensor
    norm: LayerNorm
    layers: tuple[EncoderLayer, ...]


@dataclass(frozen=True, slots=True)
class _FamilyNames:
    """Where a family keeps a layer's parts; `prefixes`: what may stand before every name."""

    prefixes: tuple[str, ...]
    layers: str
    qkv: tuple[str, str, str]
    output: str
    after_attention: str
    up: str
    down: str
    after_mlp: str


_BERT = _FamilyNames(
    ("", "bert.", "roberta.", "model."),
    "encoder.layer.",
    ("attention.self.query", "attention.self.key", "attention.self.value"),
    "attention.output.dense",
    "attention.output.LayerNorm",
    "intermediate.dense",
    "output.dense",
    "output.LayerNorm",
)
_DISTILBERT = _FamilyNames(
    ("", "distilbert."),
    "transformer.layer.",
    ("attention.q_lin", "attention.k_lin", "attention.v_lin"),
    "attention.out_lin",
    "sa_layer_norm",
    "ffn.lin1",
    "ffn.lin2",
    "output_layer_norm",
)
_NAMES = {"bert": _BERT, "distilbert": _DISTILBERT}
_WORDS = "embeddings.word_embeddings.weight"


def load_encoder(
    checkpoint: Checkpoint, config: EncoderConfig, pack: Pack, dtype: torch.dtype
) -> EncoderWeights:
    """`dtype`: of the word table. Raises BadCheckpoint naming a tensor that is missing or has
    another shape."""
    return _EncoderReader(checkpoint, config, pack, dtype).weights()


class _EncoderReader:
    """One pass over a checkpoint."""

    def __init__(
        self, checkpoint: Checkpoint, config: EncoderConfig, pack: Pack, dtype: torch.dtype
    ) -> None:
        self._checkpoint = checkpoint
        self._dtype = dtype
        self._config = config
        self._pack = pack
        self._names = _NAMES[config.names]
        self._prefix = self._find_prefix()

    def weights(self) -> EncoderWeights:
        config = self._config
        rows = config.first_position + config.positions
        positions = self._float("embeddings.position_embeddings.weight", rows, config.hidden)
        positions = positions[config.first_position :].clone()
        if config.types:
            name = "embeddings.token_type_embeddings.weight"
            positions += self._float(name, config.types, config.hidden)[0]
        return EncoderWeights(
            words=self._tensor(_WORDS, config.vocabulary, config.hidden).to(self._dtype),
            positions=positions,
            norm=self._norm("embeddings.LayerNorm"),
            layers=tuple(map(self._layer, range(config.layers))),
        )

    def _find_prefix(self) -> str:
        for prefix in self._names.prefixes:
            if prefix + _WORDS in self._checkpoint:
                return prefix
        tried = ", ".join(f"'{prefix}{_WORDS}'" for prefix in self._names.prefixes)
        raise BadCheckpoint(f"the checkpoint has no embedding table; looked for {tried}")

    def _layer(self, index: int) -> EncoderLayer:
        names, at = self._names, f"{self._names.layers}{index}."
        hidden, width = self._config.hidden, self._config.width
        return EncoderLayer(
            qkv=self._linear([at + one for one in names.qkv], hidden, hidden),
            output=self._linear([at + names.output], hidden, hidden),
            after_attention=self._norm(at + names.after_attention),
            up=self._linear([at + names.up], width, hidden),
            down=self._linear([at + names.down], hidden, width),
            after_mlp=self._norm(at + names.after_mlp),
        )

    def _linear(self, names: list[str], outputs: int, inputs: int) -> Linear:
        prefix = self._prefix
        weights = [
            self._checkpoint.weight(f"{prefix}{name}.weight", outputs, inputs) for name in names
        ]
        biases = [self._tensor(f"{name}.bias", outputs) for name in names]
        return self._pack(weights, torch.cat(biases))

    def _norm(self, name: str) -> LayerNorm:
        hidden = self._config.hidden
        return LayerNorm(self._float(f"{name}.weight", hidden), self._float(f"{name}.bias", hidden))

    def _float(self, name: str, *shape: int) -> Tensor:
        return self._tensor(name, *shape).float()

    def _tensor(self, name: str, *shape: int) -> Tensor:
        return self._checkpoint.tensor(self._prefix + name, *shape)
