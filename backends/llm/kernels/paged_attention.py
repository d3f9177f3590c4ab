"""Attention over a paged cache as Triton kernels: one for tiles of rows, one that joins parts.

A tile is consecutive rows of one sequence. Prompts go in tiles of many rows; a single row is a tile
whose keys are split among `SPLITS` programs, because one alone would leave most of a GPU idle. Into
how many does not depend on the rest of the batch, so a row is computed alike in any company.

Importing this needs Triton; with TRITON_INTERPRET=1 the kernels run on tensors of the CPU.
"""

import torch
import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, import-untyped, unused-ignore]
from torch import Tensor

from backends.llm.kernels.paged_rows import BatchRows, Pages, ScoreSpec, Tiles

SPLITS = 16
"""Programs that share the keys of a single row and key head."""
_TILE_BYTES = 16_384
"""Of the keys or values that a program reads at a time: four such tiles fit beside the queries in
the 99 KiB of shared memory that the smallest of today's GPUs gives a program."""
_NUMBERS = {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16}


def rows_per_tile(sharing: int, head_dim: int, number_bytes: int) -> int:
    """Rows of a prompt that a program takes where `sharing` heads read the same keys."""
    return max(2, _tile(head_dim, number_bytes) // sharing)


def attend(
    queries: Tensor, pages: Pages, rows: BatchRows, tiles: Tiles, scores: ScoreSpec, result: Tensor
) -> None:
    """Write the attention of the tiles' rows to `result` [T, heads, head_dim].

    `queries`: the same shape, the heads of a row side by side. Each row sees the keys of its own
    sequence up to its own position, in a window if there is one; they must be in the cache.
    """
    count, (_, heads, head_dim) = len(tiles.bounds), result.shape
    _, kv_heads, block_tokens, _ = pages.keys.shape
    splits = SPLITS if tiles.rows == 1 else 1
    partial, peaks, sums = _parts(count, heads, head_dim, splits, result)
    key_scales, value_scales = pages.scales or (result, result)
    dims = max(16, triton.next_power_of_2(head_dim))
    # The interpreter knows no products of bfloat16.
    factors = torch.float32 if queries.device.type == "cpu" else queries.dtype
    _attend[(count, kv_heads, splits)](
        queries, queries.stride(0), pages.keys, pages.values, key_scales, value_scales,
        partial, peaks, sums,
        tiles.bounds, rows.positions, rows.span_of, rows.tables, rows.tables.stride(0),
        scores.scale, scores.cap or 1.0,
        HEADS=heads, KV_HEADS=kv_heads, HEAD_DIM=head_dim, BLOCK_TOKENS=block_tokens,
        SPLITS=splits, QUERIES=max(16, triton.next_power_of_2(tiles.rows * (heads // kv_heads))),
        KEYS=_tile(head_dim, queries.element_size()), NUMBER=_NUMBERS[factors], DIMS=dims,
        WINDOW=scores.window or 0, CAPPED=scores.cap is not None, SCALED=pages.scales is not None,
        num_warps=4, num_stages=2, enable_fp_fusion=True,
    )  # fmt: skip
    if splits > 1:
        _join[(count, heads)](
            partial, peaks, sums, tiles.bounds, result,
            HEADS=heads, HEAD_DIM=head_dim, SPLITS=splits, DIMS=dims,
            num_warps=2, enable_fp_fusion=True,
        )  # fmt: skip


def _parts(
    count: int, heads: int, head_dim: int, splits: int, result: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Where the tiles' unfinished sums go; they are finished at once where nothing is split."""
    if splits == 1:
        return result, result, result
    options = {"dtype": torch.float32, "device": result.device}
    shape = (count, heads, splits)
    return (
        torch.empty(*shape, head_dim, **options),  # type: ignore[call-overload]
        torch.empty(shape, **options),  # type: ignore[call-overload]
        torch.empty(shape, **options),  # type: ignore[call-overload]
    )


def _tile(head_dim: int, number_bytes: int) -> int:
    """How many keys, and queries of a prompt, a program holds at a time."""
    wide: int = max(16, triton.next_power_of_2(head_dim)) * number_bytes
    return max(16, min(64, _TILE_BYTES // wide))


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _attend(  # type: ignore[no-untyped-def]  # noqa: PLR0913, PLR0915 (is told all, in one function)
    queries, query_stride, keys, values, key_scales, value_scales,
    partial, peaks, sums,
    bounds, positions, span_of, tables, table_stride,
    scale, cap,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr,
    BLOCK_TOKENS: tl.constexpr, SPLITS: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
    DIMS: tl.constexpr, WINDOW: tl.constexpr, CAPPED: tl.constexpr,
    SCALED: tl.constexpr, NUMBER: tl.constexpr,
):  # fmt: skip
    """Program (tile, key head, split): the tile's queries that share the key head, a row's heads
    side by side, against their part of the keys; the softmax runs along with the sums."""
    tile, kv_head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    SHARING: tl.constexpr = HEADS // KV_HEADS
    first, end = tl.load(bounds + 2 * tile), tl.load(bounds + 2 * tile + 1)
    start = tl.load(positions + first).to(tl.int32)
    table = tables + tl.load(span_of + first).to(tl.int64) * table_stride
    within = tl.arange(0, QUERIES)
    row, head = first + within // SHARING, kv_head * SHARING + within % SHARING
    position, dims = start + within // SHARING, tl.arange(0, DIMS)
    wanted, inside = row < end, dims < HEAD_DIM
    query_at = row.to(tl.int64) * query_stride + head * HEAD_DIM
    query = tl.load(
        queries + query_at[:, None] + dims[None, :],
        mask=wanted[:, None] & inside[None, :],
        other=0.0,
    ).to(NUMBER)

    # The keys that any row of the tile sees, and this program's part of them.
    low, high = 0, start + end - first
    if WINDOW:
        low = tl.maximum(start - WINDOW + 1, 0)
    each = tl.cdiv(tl.cdiv(high - low, SPLITS), KEYS) * KEYS
    low += split * each
    high = tl.minimum(low + each, high)
    part = (tile * HEADS + head).to(tl.int64) * SPLITS + split
    if low >= high:  # of a single row with fewer keys than programs; `_join` reads only the peak
        tl.store(peaks + part, tl.full([QUERIES], float("-inf"), tl.float32), mask=wanted)
        return

    peak = tl.full([QUERIES], float("-inf"), tl.float32)
    total = tl.zeros([QUERIES], tl.float32)
    mixed = tl.zeros([QUERIES, DIMS], tl.float32)
    for at in range(low, high, KEYS):
        key = at + tl.arange(0, KEYS)
        there = key < high
        block = tl.load(table + key // BLOCK_TOKENS, mask=there, other=0).to(tl.int64)
        slot = (block * KV_HEADS + kv_head) * BLOCK_TOKENS + key % BLOCK_TOKENS
        places, mask = slot[:, None] * HEAD_DIM + dims[None, :], there[:, None] & inside[None, :]
        # What lies beyond a sequence may be no number, so it is never read.
        found = tl.load(keys + places, mask=mask, other=0.0).to(NUMBER)
        score = tl.dot(query, tl.trans(found), input_precision="ieee") * scale
        if SCALED:
            score *= tl.load(key_scales + slot, mask=there, other=0.0)[None, :]
        if CAPPED:
            score = cap * (1.0 - 2.0 / (1.0 + tl.exp(2.0 * score / cap)))  # cap * tanh
        visible = there[None, :] & (key[None, :] <= position[:, None])
        if WINDOW:
            visible &= key[None, :] > position[:, None] - WINDOW
        score = tl.where(visible, score, float("-inf"))

        before, peak = peak, tl.maximum(peak, tl.max(score, 1))
        # A row may see nothing here; what is subtracted from -inf then must not be -inf itself.
        base = tl.where(peak == float("-inf"), 0.0, peak)
        share, fading = tl.exp(score - base[:, None]), tl.exp(before - base)
        total = total * fading + tl.sum(share, 1)
        found = tl.load(values + places, mask=mask, other=0.0).to(NUMBER)
        if SCALED:
            share *= tl.load(value_scales + slot, mask=there, other=0.0)[None, :]
        mixed *= fading[:, None]
        mixed += tl.dot(share.to(NUMBER), found, input_precision="ieee")

    if SPLITS == 1:
        whole = tl.where(total == 0.0, 1.0, total)
        at = (row.to(tl.int64) * HEADS + head) * HEAD_DIM
        tl.store(
            partial + at[:, None] + dims[None, :],
            (mixed / whole[:, None]).to(partial.dtype.element_ty),
            mask=wanted[:, None] & inside[None, :],
        )
    else:
        tl.store(peaks + part, peak, mask=wanted)
        tl.store(sums + part, total, mask=wanted)
        tl.store(
            partial + part[:, None] * HEAD_DIM + dims[None, :],
            mixed,
            mask=wanted[:, None] & inside[None, :],
        )


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _join(  # type: ignore[no-untyped-def]  # noqa: PLR0913
    partial, peaks, sums, bounds, result,
    HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, SPLITS: tl.constexpr, DIMS: tl.constexpr,
):  # fmt: skip
    """Program (tile of one row, head): its parts made one. Those without keys were not written."""
    tile, head = tl.program_id(0), tl.program_id(1)
    split, dims = tl.arange(0, SPLITS), tl.arange(0, DIMS)
    at = (tile * HEADS + head).to(tl.int64) * SPLITS + split
    peak = tl.load(peaks + at)
    weight = tl.exp(peak - tl.max(peak, 0))
    written, inside = peak > float("-inf"), dims < HEAD_DIM
    whole = tl.sum(tl.load(sums + at, mask=written, other=0.0) * weight, 0)
    parts = tl.load(
        partial + at[:, None] * HEAD_DIM + dims[None, :],
        mask=written[:, None] & inside[None, :],
        other=0.0,
    )
    mixed = tl.sum(parts * weight[:, None], 0) / whole
    row = tl.load(bounds + 2 * tile).to(tl.int64)
    tl.store(
        result + (row * HEADS + head) * HEAD_DIM + dims,
        mixed.to(result.dtype.element_ty),
        mask=inside,
    )
