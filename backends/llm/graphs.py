"""Steps of single rows recorded as CUDA graphs and replayed: a GPU computes such a step faster than
the host can ask for its operations one by one.

A graph is for a number of rows and always the same tensors, so steps are filled up to one of a few
sizes, and their numbers are copied into the tensors of that size.
"""

import logging
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

from backends.llm.config.decoder import DecoderConfig
from backends.llm.model.decoder import Decoder
from backends.llm.ops.seam import CacheType, Ops
from backends.llm.rows import ForwardBatch
from backends.llm.weights.stream import DecoderWeights

log = logging.getLogger(__name__)

LARGEST = 256
"""Rows beyond which a step keeps a GPU busy for longer than it takes to be asked for."""


def size_for(rows: int, largest: int = LARGEST) -> int | None:
    """Rows of the graph that serves so many: 1, 2, 4, 8, 16, 32, ...; None beyond `largest`."""
    size = 1 << (rows - 1).bit_length()
    return size if size <= largest else None


def single_rows(batch: ForwardBatch) -> bool:
    """Whether every span has one row."""
    return len(batch.places) == len(batch.tokens)


def fill_up(batch: ForwardBatch, size: int) -> ForwardBatch:
    """A batch of single rows with `size` of them, all of which give logits.

    What is added are copies of the last row: they read what it reads and write what it writes, so
    no block has to be kept for them.
    """
    missing = size - len(batch.tokens)
    last = batch.places[-1]
    more = [replace(last, first=last.first + n, last=last.last + n) for n in range(1, missing + 1)]
    return ForwardBatch(
        tokens=_repeat_last(batch.tokens, missing),
        positions=_repeat_last(batch.positions, missing),
        slots=_repeat_last(batch.slots, missing),
        span_of=torch.arange(size, dtype=batch.span_of.dtype),
        tables=_repeat_last(batch.tables, missing),
        logit_rows=torch.arange(size),
        places=(*batch.places, *more),
    )


def _repeat_last(numbers: Tensor, times: int) -> Tensor:
    return torch.cat((numbers, numbers[-1:].expand(times, *numbers.shape[1:])))


@dataclass(frozen=True, slots=True)
class StepGraph:
    """A recorded step, the batch whose tensors it reads, and the logits that it writes.

    `numbers`: int64 [3, rows], of which the batch's tokens, positions and slots are views.
    `staged`, `staged_tables`: where the host writes these and the tables, in pinned memory, so
    that copies to the device are asked for without waiting. `copied`: recorded behind them; steps
    whose logits nobody reads wait for nothing, so the next writes only when it has passed.
    """

    recorded: torch.cuda.CUDAGraph
    batch: ForwardBatch
    logits: Tensor
    numbers: Tensor
    staged: Tensor
    staged_tables: Tensor
    copied: torch.cuda.Event

    def replay(self, batch: ForwardBatch) -> Tensor:
        """The logits of a batch of as many rows; the next replay overwrites them."""
        self.copied.synchronize()
        torch.stack((batch.tokens, batch.positions, batch.slots), out=self.staged)
        self.staged_tables[:, : batch.tables.shape[1]] = batch.tables
        self.numbers.copy_(self.staged, non_blocking=True)
        self.batch.tables.copy_(self.staged_tables, non_blocking=True)
        self.copied.record()
        self.recorded.replay()
        return self.logits


class RecordingDecoder(Decoder):
    """A decoder that replays steps of single rows; each size is recorded when it is first wanted.

    On a GPU, and for operations that allow it (`Ops.replays`). The graphs share one pool of memory:
    only one of them runs at a time, and nobody keeps what it gave.
    """

    def __init__(
        self,
        config: DecoderConfig,
        weights: DecoderWeights,
        ops: Ops,
        context: int,
        blocks: int,
        cache_type: CacheType = "auto",
    ) -> None:
        """See Decoder."""
        super().__init__(config, weights, ops, context, blocks, cache_type)
        self._width = -(-context // ops.block_tokens)
        self._graphs: dict[int, StepGraph] = {}
        self._records = True

    @torch.inference_mode()
    def forward(self, batch: ForwardBatch) -> Tensor:
        """See Decoder."""
        size = self._size(batch)
        graph = None if size is None else self._graphs.get(size) or self._record(size, batch)
        if size is None or graph is None:
            return super().forward(batch)
        logits = graph.replay(fill_up(batch, size))
        rows = batch.logit_rows
        return logits[: len(rows)] if len(rows) == len(batch.tokens) else logits[rows.tolist()]

    def _size(self, batch: ForwardBatch) -> int | None:
        fits = self._records and single_rows(batch) and batch.tables.shape[1] <= self._width
        return size_for(len(batch.tokens)) if fits else None

    def _record(self, size: int, batch: ForwardBatch) -> StepGraph | None:
        """None, from now on, if the device refuses: steps are then asked for one operation after
        the other."""
        filled = fill_up(batch, size)
        missing = self._width - filled.tables.shape[1]
        wide = replace(filled, tables=functional.pad(filled.tables, (0, missing)))
        numbers = torch.stack((filled.tokens, filled.positions, filled.slots)).to(self.ops.device)
        tokens, positions, slots = numbers
        mine = replace(wide.to(self.ops.device), tokens=tokens, positions=positions, slots=slots)
        # Once before: kernels are compiled and libraries make their handles, which no graph may.
        apart = torch.cuda.Stream(self.ops.device)  # type: ignore[no-untyped-call]
        apart.wait_stream(torch.cuda.current_stream(self.ops.device))
        with torch.cuda.stream(apart):
            super().forward(mine)
        torch.cuda.current_stream(self.ops.device).wait_stream(apart)
        recorded = torch.cuda.CUDAGraph()
        others = next(iter(self._graphs.values()), None)
        pool = None if others is None else others.recorded.pool()
        try:
            with torch.cuda.graph(recorded, pool=pool):
                logits = super().forward(mine)
        except RuntimeError as error:
            log.warning("steps of %d rows cannot be recorded as a CUDA graph: %s", size, error)
            self._records = False
            return None
        staged = torch.empty(numbers.shape, dtype=numbers.dtype, pin_memory=True)
        tables = torch.zeros(mine.tables.shape, dtype=mine.tables.dtype, pin_memory=True)
        copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._graphs[size] = StepGraph(recorded, mine, logits, numbers, staged, tables, copied)
        return self._graphs[size]
