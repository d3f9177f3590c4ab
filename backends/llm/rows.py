"""What one forward pass computes, packed without padding: tokens of many sequences in a row.

Comes from the scheduler as Spans; goes to `backends.llm.model.decoder` as a Batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from backends.llm.span import Span


@dataclass(frozen=True, slots=True)
class SpanLayout:
    """Where a span lies: rows `first` to `last`, the last of which sees `context` tokens."""

    first: int
    last: int
    context: int
    blocks: tuple[int, ...]

    @property
    def rows(self) -> int:
        return self.last - self.first


@dataclass(frozen=True, slots=True)
class ForwardBatch:
    """T rows of S spans.

    `tokens`, `positions`: int64 [T]. `slots`: where each row's key and value go, int64 [T];
    slot = block * block_tokens + offset. `span_of`: int32 [T]. `tables`: block tables, int32
    [S, longest], 0 beyond a table's end. `logit_rows`: int64, the rows that need logits, in order.
    """

    tokens: Tensor
    positions: Tensor
    slots: Tensor
    span_of: Tensor
    tables: Tensor
    logit_rows: Tensor
    places: tuple[SpanLayout, ...]

    @property
    def device(self) -> torch.device:
        return self.tokens.device

    def to(self, device: torch.device) -> "ForwardBatch":
        """The same on a device; itself where it is there already."""
        if self.device == device:
            return self
        return ForwardBatch(
            self.tokens.to(device),
            self.positions.to(device),
            self.slots.to(device),
            self.span_of.to(device),
            self.tables.to(device),
            self.logit_rows.to(device),
            self.places,
        )


def pack(spans: Sequence[Span], block_tokens: int) -> ForwardBatch:
    """Lay spans end to end, on the CPU."""
    tokens: list[int] = []
    positions: list[int] = []
    slots: list[int] = []
    span_of: list[int] = []
    logit_rows: list[int] = []
    places: list[SpanLayout] = []
    for index, span in enumerate(spans):
        first, start = len(tokens), span.start
        end, blocks = start + len(span.tokens), span.blocks
        tokens.extend(span.tokens)
        if end == start + 1:
            positions.append(start)
            slots.append(blocks[start // block_tokens] * block_tokens + start % block_tokens)
        else:
            positions.extend(range(start, end))
            slots.extend(
                blocks[position // block_tokens] * block_tokens + position % block_tokens
                for position in range(start, end)
            )
        span_of.extend([index] * (end - start))
        logit_rows.extend(range(len(tokens) - span.logits, len(tokens)))
        places.append(SpanLayout(first, len(tokens), end, tuple(blocks)))
    longest = max(len(span.blocks) for span in spans)
    tables = np.zeros((len(spans), longest), np.int32)
    for row, span in zip(tables, spans, strict=True):
        row[: len(span.blocks)] = span.blocks
    return ForwardBatch(
        tokens=torch.tensor(tokens),
        positions=torch.tensor(positions),
        slots=torch.tensor(slots),
        span_of=torch.tensor(span_of, dtype=torch.int32),
        tables=torch.from_numpy(tables),
        logit_rows=torch.tensor(logit_rows, dtype=torch.int64),
        places=tuple(places),
    )
