"""Attention in plain torch: rows of one group do not look into each other's blocks."""

from pathlib import Path

import torch

from backends.llm.span import Span
from support.llm import (
    load_decoder,
    logits,
    make_checkpoint,
    prompt,
)


def test_what_is_not_a_number_stays_in_its_own_sequence(tmp_path: Path) -> None:
    """Both rows are one group, and the shorter table is filled up to the longer one's length."""
    make_checkpoint("llama", tmp_path)
    decoder = load_decoder(tmp_path)
    short, long = prompt(1, 70), prompt(2, 120)
    spoilt, first, second = range(1), range(1, 6), range(6, 14)
    logits(decoder, Span(short[:-1], 0, first, 0), Span(long[:-1], 0, second, 0))
    rows = Span(short[-1:], 69, first, 1), Span(long[-1:], 119, second, 1)
    wanted = logits(decoder, *rows)
    decoder._weights.embedding[159] = torch.nan
    logits(decoder, Span((159,) * 16, 0, spoilt, 0))
    assert torch.equal(logits(decoder, *rows), wanted)
