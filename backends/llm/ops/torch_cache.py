"""Keys and values of one layer as torch tensors, by block; as they are or as int8."""

from typing import NamedTuple

import torch
from torch import Tensor


class Slots(NamedTuple):
    """Where T rows go: int64 [T] each, a block and a place in it."""

    blocks: Tensor
    offsets: Tensor


class PlainCache:
    """Keys and values [blocks, kv_heads, block_tokens, head_dim] in the compute type: a head's
    tokens lie together, as attention reads them."""

    def __init__(
        self, shape: tuple[int, int, int, int], dtype: torch.dtype, device: torch.device
    ) -> None:
        self._keys = torch.zeros(shape, dtype=dtype, device=device)
        self._values = torch.zeros_like(self._keys)

    @property
    def bytes(self) -> int:
        return self._keys.nbytes + self._values.nbytes

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """What it is made of, each with the blocks as first dimension."""
        return (self._keys, self._values)

    def write(self, slots: Slots, keys: Tensor, values: Tensor) -> None:
        """Rows [T, kv_heads, head_dim] into T slots."""
        self._keys[slots.blocks, :, slots.offsets] = keys.to(self._keys.dtype)
        self._values[slots.blocks, :, slots.offsets] = values.to(self._values.dtype)

    def read(self, tables: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values [N, kv_heads, M * block_tokens, head_dim] of `head_tables`."""
        return _gather(self._keys, tables), _gather(self._values, tables)


class Int8Cache:
    """Keys and values in int8, with a float32 scale per slot and head."""

    def __init__(
        self, shape: tuple[int, int, int, int], dtype: torch.dtype, device: torch.device
    ) -> None:
        self._dtype = dtype
        self._numbers = [torch.zeros(shape, dtype=torch.int8, device=device) for _ in range(2)]
        self._scales = [torch.zeros(*shape[:3], 1, device=device) for _ in range(2)]

    @property
    def bytes(self) -> int:
        return sum(one.nbytes for one in self.tensors)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """See PlainCache; keys, values, and the scales of either [..., 1]."""
        return (*self._numbers, *self._scales)

    def write(self, slots: Slots, keys: Tensor, values: Tensor) -> None:
        """See PlainCache."""
        for index, rows in enumerate((keys.float(), values.float())):
            scales = rows.abs().amax(-1, keepdim=True).clamp_min(1e-30) / 127
            whole = (rows / scales).round().to(torch.int8)
            self._numbers[index][slots.blocks, :, slots.offsets] = whole
            self._scales[index][slots.blocks, :, slots.offsets] = scales

    def read(self, tables: Tensor) -> tuple[Tensor, Tensor]:
        """See PlainCache; in the compute type."""
        keys, values = (
            (_gather(numbers, tables) * _gather(scales, tables)).to(self._dtype)
            for numbers, scales in zip(self._numbers, self._scales, strict=True)
        )
        return keys, values


TorchCache = PlainCache | Int8Cache


def head_tables(tables: Tensor, kv_heads: int) -> Tensor:
    """Blocks [N, M] → int64 [N, kv_heads, M]: where each head's part of each block lies, counted
    in such parts."""
    return tables[:, None] * kv_heads + torch.arange(kv_heads, device=tables.device)[:, None]


def _gather(blocks: Tensor, tables: Tensor) -> Tensor:
    """A head's part of a block is copied whole: seven times as fast as its slots one by one."""
    _, _, block_tokens, width = blocks.shape
    count, heads, each = tables.shape
    found = blocks.flatten(0, 1).flatten(1).index_select(0, tables.flatten())
    return found.view(count, heads, each * block_tokens, width)
