"""What a checkpoint that embeds would be served as: read from its JSON alone; no torch."""

from dataclasses import dataclass
from pathlib import Path

from backends.llm.config.architectures import refuse_other_tasks
from backends.llm.config.decoder import DecoderConfig
from backends.llm.config.encoder import ENCODERS, EncoderConfig, read_encoder
from backends.llm.config.families import read_config
from backends.llm.config.fields import read_fields
from backends.llm.config.sentences import read_longest
from backends.llm.errors import BadCheckpoint
from backends.llm.memory import (
    MemoryLayout,
    block_bytes,
    linear_bytes,
    weight_bytes,
    workspace_bytes,
)
from backends.llm.model.pooling import KINDS, Pooling, read_pooling

DEFAULT_LONGEST = 8192
"""Tokens of one text where none are asked for and the model could take more."""


@dataclass(frozen=True, slots=True)
class EmbeddingPlan:
    """`longest`: tokens of one text. `dimensions`: of an embedding."""

    config: EncoderConfig | DecoderConfig
    pooling: Pooling
    longest: int

    @property
    def dimensions(self) -> int:
        return self.config.hidden

    @property
    def vocabulary(self) -> int:
        return self.config.vocabulary

    def weight_bytes(self, layout: MemoryLayout) -> int:
        if isinstance(self.config, EncoderConfig):
            return _encoder_bytes(self.config, layout)
        head = linear_bytes(self.config.vocabulary, self.config.hidden, layout)
        return weight_bytes(self.config, layout) - head

    def blocks(self, step_tokens: int, block_tokens: int) -> int:
        """Blocks of keys and values a decoder needs for one text, or for a step of short ones."""
        if isinstance(self.config, EncoderConfig):
            return 0
        return -(-self.longest // block_tokens) + -(-step_tokens // block_tokens)

    def total_bytes(self, layout: MemoryLayout, step_tokens: int) -> int:
        """All an embedder occupies: weights, a step, keys and values."""
        weights = self.weight_bytes(layout)
        if isinstance(self.config, EncoderConfig):
            rows = max(step_tokens, self.longest)
            widest = 2 * self.config.width + 8 * self.config.hidden
            return weights + 4 * rows * widest
        cache = self.blocks(step_tokens, layout.block_tokens) * block_bytes(self.config, layout)
        return weights + workspace_bytes(self.config, step_tokens) + cache


def read_embedding(folder: Path, pooling: str = "", longest: int = 0) -> EmbeddingPlan | None:
    """What the folder embeds as; None for a model that generates.

    A decoder embeds when `modules.json` or `pooling` (a PoolingKind) says so, an encoder always.
    Raises BadCheckpoint naming the file and field, or UnknownFamily.
    """
    if pooling and pooling not in KINDS:
        raise BadCheckpoint(f"pooling is '{pooling:.80}'; it must be one of {', '.join(KINDS)}")
    fields = read_fields(folder / "config.json")
    refuse_other_tasks(fields)
    family = fields.text("model_type")
    said = read_pooling(folder)
    effective = next((Pooling(kind, said is None or said.normalise) for kind in KINDS
                  if kind == pooling), said)  # fmt: skip
    if family in ENCODERS:
        encoder = read_encoder(family, fields)
        usual = min(read_longest(folder) or encoder.positions, encoder.positions)
        taken = _longest(longest or usual, encoder.positions)
        return EmbeddingPlan(encoder, effective or Pooling("mean"), taken)
    if effective is None:
        return None
    decoder = read_config(folder)
    usual = min(read_longest(folder) or DEFAULT_LONGEST, decoder.positions)
    taken = _longest(longest or usual, decoder.positions)
    return EmbeddingPlan(decoder, effective, taken)


def _longest(context: int, most: int) -> int:
    if context > most:
        raise BadCheckpoint(
            f"a context of {context} tokens was asked for; config.json's 'max_position_embeddings' "
            f"allows {most}"
        )
    return context


def _encoder_bytes(config: EncoderConfig, layout: MemoryLayout) -> int:
    hidden, width = config.hidden, config.width
    tables = config.vocabulary * hidden * layout.compute_bytes + 4 * config.positions * hidden
    shapes = ((3 * hidden, hidden), (hidden, hidden), (width, hidden), (hidden, width))
    layer = sum(linear_bytes(outputs, inputs, layout) + 4 * outputs for outputs, inputs in shapes)
    return tables + config.layers * (layer + 16 * hidden)
