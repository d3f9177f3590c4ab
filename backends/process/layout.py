"""How the tensors of a batch lie in a region: per name, the members' rows behind one another.

So a runtime that wants one stacked array per input can look at the whole block as one
(`merged`), and a model that wants each request's tensor gets a view per member (`unpack`).
Numbers are bit-exact copies; a BYTES block is a table of uint32 lengths, then the bytes.
"""

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import NamedTuple, Protocol

import numpy as np

from backends.seam import Tensors
from repository.config.tensors import BY_DTYPE, BY_NAME, Array

ALIGN_BYTES = 64
_ELEMENT_BYTES = 48
"""Of an element of BYTES, beside its contents."""

Shape = tuple[int, ...]


class TensorBlock(NamedTuple):
    """One tensor of every member: its offset in the region, and the members' shapes in order
    (None for a member that has no tensor of this name)."""

    name: str
    datatype: str
    offset: int
    shapes: tuple[Shape | None, ...]


class _ArrayPlacement(NamedTuple):
    offset: int
    source: Array


class TensorBuffer(Protocol):
    """Where tensors can be written: an `Outbox` or a `Parcel`."""

    def reserve(self, size_bytes: int) -> Array: ...


def pack(members: Sequence[Tensors], room: TensorBuffer, start: int = 0) -> list[TensorBlock]:
    """Write every member's tensors into the region, once, from `start` on.

    BYTES elements must be `bytes`. Raises `ValueError` when members disagree about a tensor's
    data type or a dtype is none of the protocol's.
    """
    names = members[0] if len(members) == 1 else dict.fromkeys(n for m in members for n in m)
    blocks: list[TensorBlock] = []
    pieces: list[_ArrayPlacement] = []
    end = start
    for name in names:
        arrays = [member.get(name) for member in members]
        start = -(-end // ALIGN_BYTES) * ALIGN_BYTES
        datatype, end = _place(name, arrays, start, pieces)
        shapes = tuple(None if array is None else array.shape for array in arrays)
        blocks.append(TensorBlock(name, datatype, start, shapes))
    region = room.reserve(end)
    for offset, source in pieces:
        there = np.ndarray(source.shape, source.dtype, region, offset)
        there[...] = source
    return blocks


def unpack(blocks: Sequence[TensorBlock], count: int, region: Array) -> list[dict[str, Array]]:
    """The tensors of `count` members, as views of `region` (BYTES are copied).

    Raises `ValueError` or `TypeError` when the blocks do not fit the region, one beside the other.
    """
    if count == 1 and (only := _unpack_one(blocks, region)) is not None:
        return [only]
    _refuse_outside(blocks, region)
    members: list[dict[str, Array]] = [{} for _ in range(count)]
    room = len(region)
    for name, datatype, start, shapes in blocks:
        row = BY_NAME[datatype]
        if row.itemsize:
            room -= _unpack_numbers(name, row.dtype, shapes, members, region, start)
        else:
            room -= _unpack_bytes(name, shapes, members, region, start)
        if room < 0:
            raise ValueError("tensors lie over one another")
    return members


def _unpack_one(blocks: Sequence[TensorBlock], region: Array) -> dict[str, Array] | None:
    """The tensors of the only member, where each is of numbers and nothing is amiss."""
    found: dict[str, Array] = {}
    room = len(region)
    for name, datatype, start, shapes in blocks:
        row, shape = BY_NAME[datatype], shapes[0] if len(shapes) == 1 else None
        if not row.itemsize or shape is None or start < 0 or (shape and min(shape) < 0):
            return None
        size = prod(shape) * row.itemsize
        room -= size
        if room < 0 or start + size > len(region):
            return None
        found[name] = np.ndarray(shape, row.dtype, region, start)
    return found


def kept_bytes(blocks: Sequence[TensorBlock], region: Array) -> int:
    """What `unpack` makes of the blocks, in memory: an element of BYTES is an object. Raises as
    `unpack` does."""
    _refuse_outside(blocks, region)
    size = 0
    for _name, datatype, start, shapes in blocks:
        count = sum(prod(shape) for shape in shapes if shape is not None)
        size += count * (BY_NAME[datatype].itemsize or _ELEMENT_BYTES)
        if not BY_NAME[datatype].itemsize:
            size += int(np.ndarray((count,), "<u4", region, start).sum(dtype=np.int64))
    return size


def _refuse_outside(blocks: Sequence[TensorBlock], region: Array) -> None:
    """Of all blocks, before any is read: numpy reads before its buffer at a negative offset, and
    its own sums overflow. Raises `ValueError`."""
    for name, datatype, start, shapes in blocks:
        if start < 0 or any(shape and min(shape) < 0 for shape in shapes):
            raise ValueError(f"tensor '{name}' has a negative offset or dimension")
        count = sum(prod(shape) for shape in shapes if shape is not None)
        if start + count * (BY_NAME[datatype].itemsize or 4) > len(region):
            raise ValueError(f"tensor '{name}' ends behind its region")


def merged(blocks: Sequence[TensorBlock]) -> list[TensorBlock] | None:
    """The same blocks seen as one member with all the rows; None when the members' tensors
    cannot be stacked (one lacks an input, or shapes behind the batch dimension differ)."""
    stacked: list[TensorBlock] = []
    for name, datatype, offset, shapes in blocks:
        first = shapes[0]
        if not first:
            return None
        rows = 0
        for shape in shapes:
            if not shape or shape[1:] != first[1:]:
                return None
            rows += shape[0]
        stacked.append(TensorBlock(name, datatype, offset, ((rows, *first[1:]),)))
    return stacked


def _place(
    name: str, arrays: Sequence[Array | None], start: int, pieces: list[_ArrayPlacement]
) -> tuple[str, int]:
    """Plan one block at `start`; its data type and where it ends."""
    present = [array for array in arrays if array is not None]
    row = BY_DTYPE.get(present[0].dtype)
    if row is None or any(array.dtype != row.dtype for array in present):
        raise ValueError(f"tensor '{name}' has dtypes {[str(array.dtype) for array in present]}")
    if not row.itemsize:
        present = [_encode_bytes(present)]
    for array in present:
        if array.size:
            pieces.append(_ArrayPlacement(start, array))
        start += array.nbytes
    return row.name, start


def _encode_bytes(arrays: Sequence[Array]) -> Array:
    elements: list[bytes] = []
    for array in arrays:
        elements.extend(array.ravel().tolist())
    lengths = np.fromiter(map(len, elements), np.dtype("<u4"), len(elements))
    return np.frombuffer(lengths.tobytes() + b"".join(elements), np.uint8)


def _unpack_numbers(
    name: str,
    dtype: np.dtype[np.generic],
    shapes: Sequence[Shape | None],
    members: Sequence[dict[str, Array]],
    region: Array,
    start: int,
) -> int:
    """The bytes they take in the region."""
    offset = start
    for member, shape in zip(members, shapes, strict=True):
        if shape is not None:
            member[name] = np.ndarray(shape, dtype, region, offset)
            offset += member[name].nbytes
    return offset - start


def _unpack_bytes(
    name: str,
    shapes: Sequence[Shape | None],
    members: Sequence[dict[str, Array]],
    region: Array,
    start: int,
) -> int:
    """The bytes they take in the region."""
    counts = [0 if shape is None else prod(shape) for shape in shapes]
    lengths = np.ndarray((sum(counts),), "<u4", region, start)
    ends = np.cumsum(lengths, dtype=np.int64).tolist()
    start += lengths.nbytes
    total = ends[-1] if ends else 0
    if start + total > len(region):
        raise ValueError(f"tensor '{name}' ends behind its region")
    data = region[start : start + total].tobytes()
    elements = np.empty(len(ends), np.object_)
    elements[:] = [data[a:b] for a, b in pairwise((0, *ends))]
    first = 0
    for member, shape, count in zip(members, shapes, counts, strict=True):
        if shape is not None:
            member[name] = elements[first : first + count].reshape(shape)
            first += count
    return lengths.nbytes + total
