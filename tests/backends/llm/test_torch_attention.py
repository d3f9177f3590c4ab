"""Attention in plain torch: against float32, and rows of one group do not look into each other's
blocks."""

from pathlib import Path

import pytest
import torch

from backends.llm.ops.reference import TorchOps
from backends.llm.ops.seam import AttentionSpec, CacheType, QueryKeySpec
from backends.llm.rows import Span, pack
from support.llm import (
    BLOCK_TOKENS,
    decoder_config,
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


@pytest.mark.parametrize("cache_type", ["auto", "int8"])
@pytest.mark.parametrize(
    "sight",
    [AttentionSpec(None, 0.2, None), AttentionSpec(20, 0.2, None), AttentionSpec(5, 0.2, 3.0)],
)
def test_bfloat16_attends_like_float32(sight: AttentionSpec, cache_type: CacheType) -> None:
    """Single rows of unlike contexts beside a chunk, after prompts in scattered blocks."""
    wanted = _attended(torch.float32, sight, "auto")
    found = _attended(torch.bfloat16, sight, cache_type).float()
    assert (found - wanted).norm() / wanted.norm() < 2e-2


def _attended(dtype: torch.dtype, sight: AttentionSpec, cache_type: CacheType) -> torch.Tensor:
    ops = TorchOps(decoder_config(heads=6, kv_heads=2), dtype, BLOCK_TOKENS)
    cache = ops.new_cache(ops.config, 32, cache_type)[0]
    turn = QueryKeySpec(None, None, "none", None, None)
    tables = (20, 4, 6, 5, 7), (9, 3), (1, 0, 2, 30)
    passes = [
        [Span([0] * count, 0, table, 0) for count, table in zip((50, 17, 9), tables, strict=True)],
        [Span([0], 50, tables[0], 0), Span([0], 17, tables[1], 0), Span([0] * 40, 9, tables[2], 0)],
    ]
    for number, spans in enumerate(passes):
        batch = pack(spans, BLOCK_TOKENS)
        width = ops.config.q_width + 2 * ops.config.kv_width
        noise = torch.Generator().manual_seed(number)
        qkv = torch.randn(len(batch.tokens), width, generator=noise).bfloat16().to(dtype)
        plan = ops.plan(batch)
        found = ops.attend(ops.store(qkv, turn, cache, plan, 1e-5), cache, plan, sight)
    return found
