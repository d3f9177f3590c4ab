"""Keys and values of one layer as torch tensors, by block; as they are or as int8."""

import torch
from torch import Tensor


class PlainCache:
    """Keys and values [blocks, block_tokens, kv_heads, head_dim] in the compute type."""

    def __init__(self, shape: tuple[int, int, int, int], dtype: torch.dtype) -> None:
        self._keys = torch.zeros(shape, dtype=dtype)
        self._values = torch.zeros_like(self._keys)

    @property
    def bytes(self) -> int:
        return self._keys.nbytes + self._values.nbytes

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """What it is made of, each with the blocks as first dimension."""
        return (self._keys, self._values)

    def write(self, slots: Tensor, keys: Tensor, values: Tensor) -> None:
        """Rows [T, kv_heads, head_dim] into `slots` [T]."""
        self._keys.flatten(0, 1)[slots] = keys.to(self._keys.dtype)
        self._values.flatten(0, 1)[slots] = values.to(self._values.dtype)

    def read(self, tables: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values [N, M * block_tokens, kv_heads, head_dim] of the blocks [N, M]."""
        return _gather(self._keys, tables), _gather(self._values, tables)


class Int8Cache:
    """Keys and values in int8, with a float32 scale per slot and head."""

    def __init__(self, shape: tuple[int, int, int, int], dtype: torch.dtype) -> None:
        self._dtype = dtype
        self._numbers = [torch.zeros(shape, dtype=torch.int8) for _ in range(2)]
        self._scales = [torch.zeros(*shape[:3], 1) for _ in range(2)]

    @property
    def bytes(self) -> int:
        return sum(one.nbytes for one in self.tensors)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """See PlainCache."""
        return (*self._numbers, *self._scales)

    def write(self, slots: Tensor, keys: Tensor, values: Tensor) -> None:
        """See PlainCache."""
        for index, rows in enumerate((keys.float(), values.float())):
            scales = rows.abs().amax(-1, keepdim=True).clamp_min(1e-30) / 127
            self._numbers[index].flatten(0, 1)[slots] = (rows / scales).round().to(torch.int8)
            self._scales[index].flatten(0, 1)[slots] = scales

    def read(self, tables: Tensor) -> tuple[Tensor, Tensor]:
        """See PlainCache; in the compute type."""
        keys, values = (
            (_gather(numbers, tables) * _gather(scales, tables)).to(self._dtype)
            for numbers, scales in zip(self._numbers, self._scales, strict=True)
        )
        return keys, values


TorchCache = PlainCache | Int8Cache


def _gather(blocks: Tensor, tables: Tensor) -> Tensor:
    """Whole blocks are copied: seven times as fast as their slots one by one."""
    _, block_tokens, heads, width = blocks.shape
    found = blocks.flatten(1).index_select(0, tables.flatten())
    return found.view(len(tables), tables.shape[1] * block_tokens, heads, width)
