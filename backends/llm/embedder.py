"""Texts to vectors: passes of a bounded size through an encoder or a decoder, rows pooled.

Comes from the engine process with lists of tokens; `steps` lets its loop breathe between passes.
"""

import time
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from backends.llm.config.encoder import EncoderConfig
from backends.llm.decoder_embedding import DecoderEmbeddingModel
from backends.llm.embedding_plan import EmbeddingPlan, read_embedding
from backends.llm.errors import BadCheckpoint, NoRoom
from backends.llm.load import LoadSettings
from backends.llm.load_phases import PhaseClock
from backends.llm.memory import MemoryLayout
from backends.llm.model.encoder import Encoder
from backends.llm.model.pooling import Pooling
from backends.llm.ops.choose import choose_linears
from backends.llm.weights.checkpoint import Checkpoint
from backends.llm.weights.encoder_weights import load_encoder

Texts = Sequence[Sequence[int]]
Vectors = np.ndarray[tuple[int, int], np.dtype[np.float32]]
Piece = tuple[int, Tensor]
"""A text's index, and float32 rows of it; the rows of one text come in order."""


class EmbeddingModel(Protocol):
    """A model that gives rows of its last layer. `ops`: which implementation computes."""

    ops: str

    def passes(self, texts: Texts) -> Iterator[Sequence[Piece]]:
        """What each pass through the model gave, until every token of every text has a row."""


class Embedder:
    """`dimensions` of a vector; `longest`: tokens of one text; used by one thread."""

    def __init__(self, plan: EmbeddingPlan, rows: EmbeddingModel) -> None:
        self.dimensions = plan.dimensions
        self.longest = plan.longest
        self.vocabulary = plan.vocabulary
        self.ops = rows.ops
        self._pooling = plan.pooling
        self._rows = rows

    def embed(self, texts: Texts) -> Vectors:
        """float32 [texts, dimensions]. Raises ValueError naming a text that cannot be embedded."""
        steps = self.steps(texts)
        while True:
            try:
                next(steps)
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]

    def steps(self, texts: Texts) -> Generator[None, None, Vectors]:
        """The same, with a pause after every pass."""
        self.refuse(texts)
        pools = [_PoolAccumulator(self._pooling) for _ in texts]
        for pieces in self._rows.passes(texts):
            for index, rows in pieces:
                pools[index].add(rows)
            yield
        vectors = [pool.vector() for pool in pools] or [torch.empty(0, self.dimensions)]
        return torch.stack(vectors).numpy() if texts else vectors[0].numpy()

    def refuse(self, texts: Texts) -> None:
        """Raise ValueError unless every text can be embedded."""
        for index, text in enumerate(texts):
            if not text:
                raise ValueError(f"text {index} has no tokens; it needs at least one")
            if len(text) > self.longest:
                raise ValueError(
                    f"text {index} has {len(text)} tokens; the model takes at most {self.longest}"
                )
            if not 0 <= min(text) <= max(text) < self.vocabulary:
                raise ValueError(
                    f"text {index} has a token that the model does not know; its tokens are 0 to "
                    f"{self.vocabulary - 1}"
                )


class _PoolAccumulator:
    """The rows of one text so far, as much of them as its vector needs."""

    def __init__(self, pooling: Pooling) -> None:
        self._pooling = pooling
        self._kept: Tensor | None = None
        self._count = 0

    def add(self, rows: Tensor) -> None:
        self._count += len(rows)
        if self._pooling.kind == "last":
            self._kept = rows[-1]
        elif self._pooling.kind == "mean":
            total = rows.sum(0)
            self._kept = total if self._kept is None else self._kept + total
        elif self._kept is None:
            self._kept = rows[0]

    def vector(self) -> Tensor:
        assert self._kept is not None, "every text has at least one row. This is a bug."
        vector = self._kept / self._count if self._pooling.kind == "mean" else self._kept
        return torch.nn.functional.normalize(vector, dim=0) if self._pooling.normalise else vector


class EncoderEmbeddingModel:
    """Whole texts, as many in a pass as `step_tokens` have room for; see `EmbeddingModel`."""

    def __init__(self, encoder: Encoder, step_tokens: int, ops: str) -> None:
        self._encoder = encoder
        self._step_tokens = step_tokens
        self.ops = ops

    def passes(self, texts: Texts) -> Iterator[Sequence[Piece]]:
        part: list[int] = []
        for index in range(len(texts)):
            if part and sum(len(texts[one]) for one in (*part, index)) > self._step_tokens:
                yield self._pass(texts, part)
                part = []
            part.append(index)
        if part:
            yield self._pass(texts, part)

    def _pass(self, texts: Texts, part: Sequence[int]) -> list[Piece]:
        rows = self._encoder.forward([texts[index] for index in part])
        return list(zip(part, rows, strict=True))


def open_embedder(
    folder: Path, settings: LoadSettings, pooling: str = "", clock: PhaseClock | None = None
) -> Embedder:
    """Its phases are told to `clock`. Raises BadCheckpoint, UnknownFamily, NoRoom or NoDevice, all
    of them LoadFailed."""
    clock = clock or PhaseClock(time.monotonic())
    plan = read_embedding(folder, pooling, settings.context or 0)
    if plan is None:
        raise BadCheckpoint("the checkpoint has no modules.json and no pooling was asked for")
    _refuse_small_budget(plan, settings)
    if not isinstance(plan.config, EncoderConfig):
        decoder = DecoderEmbeddingModel.load(folder, plan, settings)
        clock.end("weights")
        return Embedder(plan, decoder)
    linears = choose_linears(settings.precision, settings.compiled)
    with Checkpoint(folder) as checkpoint:
        weights = load_encoder(checkpoint, plan.config, linears.pack, linears.dtype)
        clock.end("weights", checkpoint.bytes)
    encoder = Encoder(plan.config, weights, linears.dtype)
    return Embedder(plan, EncoderEmbeddingModel(encoder, settings.step_tokens, linears.name))


def _refuse_small_budget(plan: EmbeddingPlan, settings: LoadSettings) -> None:
    width = 4 if settings.precision == "float32" else 2
    layout = MemoryLayout(settings.precision, settings.cache_type, width, settings.block_tokens)
    needed = plan.total_bytes(layout, settings.step_tokens)
    if needed > settings.memory_budget:
        raise NoRoom(
            f"the memory budget of {settings.memory_budget >> 20} MiB is too small; give at least "
            f"{(needed >> 20) + 1} MiB, or fewer bits"
        )
