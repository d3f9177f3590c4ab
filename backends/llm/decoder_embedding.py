"""A decoder that embeds: its last layer's rows for whole texts, without head and sampling."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from backends.llm.config.decoder import DecoderConfig
from backends.llm.embedding_plan import EmbeddingPlan
from backends.llm.errors import DeviceLost
from backends.llm.load import LoadSettings
from backends.llm.model.decoder import Decoder
from backends.llm.ops.choose import choose_ops, open_device
from backends.llm.rows import pack
from backends.llm.span import Span
from backends.llm.weights.checkpoint import Checkpoint
from backends.llm.weights.stream import load_weights


class DecoderEmbeddingModel:
    """Texts in passes of `step_tokens`, long ones in several; see
    `backends.llm.embedder.EmbeddingModel`.

    The decoder has `blocks` blocks for the texts of a group, which are computed to their ends
    before the next group begins.
    """

    def __init__(self, decoder: Decoder, blocks: int, step_tokens: int) -> None:
        self._decoder = decoder
        self._blocks = blocks
        self._step_tokens = step_tokens
        self.ops = decoder.ops.name

    @classmethod
    def load(
        cls, folder: Path, plan: EmbeddingPlan, settings: LoadSettings
    ) -> "DecoderEmbeddingModel":
        """Raises BadCheckpoint naming the tensor, or NoDevice."""
        config = plan.config
        assert isinstance(config, DecoderConfig), "an encoder is no decoder. This is a bug."
        ops = choose_ops(
            config,
            settings.precision,
            settings.cache_type,
            settings.block_tokens,
            settings.compiled,
            open_device(settings.device),
        )
        with Checkpoint(folder) as checkpoint:
            weights = load_weights(checkpoint, config, ops, settings.precision, head=False)
        blocks = plan.blocks(settings.step_tokens, settings.block_tokens)
        decoder = Decoder(config, weights, ops, plan.longest, blocks, settings.cache_type)
        return cls(decoder, blocks, settings.step_tokens)

    def passes(self, texts: Sequence[Sequence[int]]) -> Iterator[list[tuple[int, Tensor]]]:
        """Raises DeviceLost, after which no other pass will do better."""
        for group in self._groups(texts):
            spans: list[tuple[int, Span]] = []
            room = self._step_tokens
            for index, blocks in group.items():
                text = texts[index]
                start = 0
                while start < len(text):
                    count = min(len(text) - start, room)
                    spans.append((index, Span(text[start : start + count], start, blocks, count)))
                    start, room = start + count, room - count
                    if not room:
                        yield self._pass(spans)
                        spans, room = [], self._step_tokens
            if spans:
                yield self._pass(spans)

    def _groups(self, texts: Sequence[Sequence[int]]) -> Iterator[dict[int, range]]:
        """Texts, in order, with the blocks they get; as many as there are blocks for."""
        group: dict[int, range] = {}
        taken = 0
        for index, text in enumerate(texts):
            needed = -(-len(text) // self._decoder.ops.block_tokens)
            if taken + needed > self._blocks:
                yield group
                group, taken = {}, 0
            group[index] = range(taken, taken + needed)
            taken += needed
        if group:
            yield group

    def _pass(self, spans: Sequence[tuple[int, Span]]) -> list[tuple[int, Tensor]]:
        batch = pack([span for _, span in spans], self._decoder.ops.block_tokens)
        try:
            found = self._decoder.hidden(batch).cpu()
        except torch.AcceleratorError as error:
            raise DeviceLost(str(error)) from error
        rows = torch.split(found, [span.logits for _, span in spans])
        return [(index, part) for (index, _), part in zip(spans, rows, strict=True)]
