"""Paged attention in plain torch: rows are grouped, their keys gathered, each group is one call.

Queries that share a key head are folded into the rows of one matrix: on a CPU that is eight times
as fast as torch's own grouped-query option (measured at 32 sequences of 256 tokens).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from backends.llm.ops.linears import multiplies_bfloat16
from backends.llm.ops.seam import AttentionSpec, QueryKeySpec
from backends.llm.ops.torch_cache import Slots, TorchCache, head_tables
from backends.llm.rows import ForwardBatch, SpanLayout


@dataclass(frozen=True, slots=True)
class Group:
    """N spans of R rows each that are attended to together.

    `rows`: int64 [N * R]. `tables`: their blocks by head, int64 [N, kv_heads, M]; see
    `head_tables`. `keys`: M blocks' tokens.
    `positions`: int64 [N, R]. `masks`: by window, added to the scores; float [N, 1, 1, R, keys].
    """

    rows: Tensor
    tables: Tensor
    keys: int
    positions: Tensor
    masks: dict[int | None, Tensor] = field(default_factory=dict)

    def mask(self, window: int | None, dtype: torch.dtype) -> Tensor:
        """0 where a row sees a key and -inf where it does not; made once per window."""
        if window not in self.masks:
            keys = torch.arange(self.keys, device=self.positions.device)
            visible = keys <= self.positions[..., None]
            if window is not None:
                visible &= keys > self.positions[..., None] - window
            mask = torch.zeros(visible.shape, dtype=dtype, device=visible.device)
            mask.masked_fill_(~visible, -torch.inf)
            self.masks[window] = mask[:, None, None]
        return self.masks[window]


@dataclass(frozen=True, slots=True)
class Angles:
    """How each row of a batch turns: float32 [T, 1, dims], the first half of the sines negated."""

    cosines: Tensor
    sines: Tensor

    @property
    def dims(self) -> int:
        return self.cosines.shape[-1]


@dataclass(frozen=True, slots=True)
class AttentionPlan:
    """A batch, where its keys and values go, and how its rows are grouped. `turns`: the angles
    taken from each table so far."""

    batch: ForwardBatch
    slots: Slots
    groups: tuple[Group, ...]
    turns: dict[int, Angles] = field(default_factory=dict)

    def angles(self, turn: QueryKeySpec) -> Angles | None:
        """Looked up once for all layers that turn alike."""
        if turn.cosines is None or turn.sines is None:
            return None
        if id(turn.cosines) not in self.turns:
            positions = self.batch.positions
            cosines, sines = turn.cosines[positions][:, None], turn.sines[positions][:, None]
            self.turns[id(turn.cosines)] = Angles(
                torch.cat((cosines, cosines), dim=-1), torch.cat((-sines, sines), dim=-1)
            )
        return self.turns[id(turn.cosines)]


def plan_attention(batch: ForwardBatch, block_tokens: int, kv_heads: int) -> AttentionPlan:
    """Single rows by the size of their context, within a factor of two; longer spans alone."""
    buckets: dict[int, list[SpanLayout]] = {}
    groups = []
    make = partial(_group, block_tokens=block_tokens, kv_heads=kv_heads, device=batch.device)
    for place in batch.places:
        if place.rows == 1:
            buckets.setdefault(place.context.bit_length(), []).append(place)
        else:
            groups.append(make([place]))
    groups += [make(places) for places in buckets.values()]
    slots = Slots(batch.slots // block_tokens, batch.slots % block_tokens)
    return AttentionPlan(batch, slots, tuple(groups))


def _group(
    places: Sequence[SpanLayout], block_tokens: int, kv_heads: int, device: torch.device
) -> Group:
    longest = max(place.context for place in places)
    blocks = -(-longest // block_tokens)
    tables = torch.tensor([_filled(place, blocks) for place in places], device=device)
    rows = [range(place.first, place.last) for place in places]
    positions = [range(place.context - place.rows, place.context) for place in places]
    return Group(
        torch.tensor([row for each in rows for row in each], device=device),
        head_tables(tables, kv_heads),
        blocks * block_tokens,
        torch.tensor([list(each) for each in positions], device=device),
    )


def _filled(place: SpanLayout, count: int) -> list[int]:
    """A place's first blocks, and where it has fewer, one of its own again: another sequence's may
    hold what is not a number, which would spoil the sum although its share is 0."""
    blocks = place.blocks[:count]
    return [*blocks, *[blocks[0]] * (count - len(blocks))]


def attend(queries: Tensor, cache: TorchCache, plan: AttentionPlan, sight: AttentionSpec) -> Tensor:
    """[T, heads, head_dim] → the same shape: each row attends to what it may see."""
    result = torch.empty_like(queries)
    for group in plan.groups:
        keys, values = cache.read(group.tables)
        result[group.rows] = _attend_group(queries[group.rows], keys, values, group, sight)
    return result


def _attend_group(
    queries: Tensor, keys: Tensor, values: Tensor, group: Group, sight: AttentionSpec
) -> Tensor:
    count, rows = group.positions.shape
    _, heads, head_dim = queries.shape
    kv_heads = keys.shape[1]
    shape = (count, rows, kv_heads, heads // kv_heads, head_dim)
    folded = queries.view(shape).permute(0, 2, 3, 1, 4).reshape(count, kv_heads, -1, head_dim)
    mask = group.mask(sight.window, queries.dtype)
    mask = mask.expand(-1, -1, heads // kv_heads, -1, -1).flatten(2, 3)
    if sight.cap is not None:
        scores = folded.float() @ keys.float().transpose(2, 3) * sight.scale
        scores = torch.tanh(scores / sight.cap) * sight.cap + mask
        mixed = scores.softmax(-1).to(values.dtype) @ values
    elif rows == 1 and queries.dtype is torch.bfloat16 and multiplies_bfloat16():
        mixed = _attend_rows(folded, keys, values, mask, sight.scale)
    else:
        mixed = functional.scaled_dot_product_attention(
            folded, keys, values, attn_mask=mask, scale=sight.scale
        )
    unfolded = mixed.view(count, kv_heads, heads // kv_heads, rows, head_dim)
    return unfolded.permute(0, 3, 1, 2, 4).reshape(count * rows, heads, head_dim)


def _attend_rows(
    queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor, scale: float
) -> Tensor:
    """All sequences in one product each way: torch's own attention makes two for every head, which
    took 1.9 times as long (measured at 32 sequences of 256 tokens).

    Scores are rounded to bfloat16, as the queries and keys that they are made of were.
    """
    count, kv_heads, sharing, head_dim = queries.shape
    scores = torch.bmm(queries.flatten(0, 1), keys.flatten(0, 1).transpose(1, 2))
    masked = scores.float().mul_(scale).view(count, kv_heads, sharing, -1).add_(mask)
    shares = masked.softmax(-1).to(values.dtype)
    mixed = torch.bmm(shares.flatten(0, 1), values.flatten(0, 1))
    return mixed.view(count, kv_heads, sharing, head_dim)
