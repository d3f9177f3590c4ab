"""Regions that carry one batch after the other, and what is kept of a layout that comes again.

A model's batches are mostly alike. Planning how tensors lie in a region, and checking it, takes
several times as long as copying 64 KB, so both sides keep the last layout of each number of
members.
"""

import sys
from collections.abc import Sequence
from math import prod

import numpy as np

from backends.process.layout import Shape, TensorBlock, kept_bytes, merged, pack, unpack
from backends.process.region import RegionReader, RegionWriter
from backends.seam import Tensors
from repository.config.tensors import BY_NAME, Array

_MOST_MEMBERS = 16
"""Of a batch whose layout is kept: in a larger one, planning is a smaller part of the work."""

_Place = tuple[str, Shape, np.dtype[np.generic], int]
"""Of one tensor: name, shape, dtype and offset."""


class BatchLayout:
    """How the tensors of a batch lie in a region, checked. Raises `ValueError` or `TypeError` where
    they do not fit it, as `backends.process.layout.unpack` does.

    `size_bytes`: that its tensors take in memory. `is_constant`: whether the blocks alone say where
    everything lies; with BYTES, the region does too.
    """

    def __init__(self, blocks: tuple[TensorBlock, ...], count: int, region: Array) -> None:
        self.blocks = blocks
        self.size_bytes = kept_bytes(blocks, region)
        self._count = count
        self._stacked: BatchLayout | None = None
        self.is_constant = all(BY_NAME[block.datatype].itemsize for block in blocks)
        self._places = _places(blocks, count) if self.is_constant else []
        if self.is_constant and self.size_bytes > len(region):
            raise ValueError("tensors lie over one another")

    def tensors(self, region: Array) -> list[dict[str, Array]]:
        """The members' tensors: views of the region, and copies of BYTES."""
        if not self.is_constant:
            return unpack(self.blocks, self._count, region)
        members = []
        for places in self._places:
            tensors: dict[str, Array] = {}
            for name, shape, dtype, offset in places:
                tensors[name] = np.ndarray(shape, dtype, region, offset)
            members.append(tensors)
        return members

    def copies(self, region: Array) -> list[dict[str, Array]]:
        """The members' tensors, none of which lies in the region."""
        members = self.tensors(region)
        for tensors in members:
            for name, array in tensors.items():
                if array.base is region:
                    tensors[name] = array.copy()
        return members

    def stacked(self, region: Array) -> Tensors | None:
        """All members' tensors as those of one; None where they cannot be stacked."""
        if self._stacked is None:
            blocks = merged(self.blocks)
            if blocks is None:
                return None
            self._stacked = BatchLayout(tuple(blocks), 1, region)
        return self._stacked.tensors(region)[0]


def _places(blocks: Sequence[TensorBlock], count: int) -> list[list[_Place]]:
    """Of each member's tensors."""
    found: list[list[_Place]] = [[] for _ in range(count)]
    for name, datatype, offset, shapes in blocks:
        row = BY_NAME[datatype]
        for index, shape in zip(range(count), shapes, strict=True):
            if shape is not None:
                found[index].append((name, shape, row.dtype, offset))
                offset += prod(shape) * row.itemsize
    return found


class BatchReader(RegionReader):
    """The side that reads batches. Layouts are kept as long as the region."""

    def __init__(self) -> None:
        super().__init__()
        self._layouts: dict[int, BatchLayout] = {}
        self.region = self.view()
        self._unheld_references = sys.getrefcount(self.region)

    def accept(self, fd: int) -> None:
        """Map another region; see `RegionReader.accept`."""
        self._layouts.clear()
        super().accept(fd)
        self.region = self.view()

    def layout(self, blocks: tuple[TensorBlock, ...], count: int) -> BatchLayout:
        """Of a batch of `count` members in the region. Raises as `BatchLayout`."""
        kept = self._layouts.get(count)
        if kept is not None and kept.blocks == blocks:
            return kept
        layout = BatchLayout(blocks, count, self.region)
        if layout.is_constant and count <= _MOST_MEMBERS:
            self._layouts[count] = layout
        return layout

    @property
    def is_held(self) -> bool:
        """Whether anybody still has an array that lies in the region."""
        return sys.getrefcount(self.region) > self._unheld_references

    def close(self) -> None:
        """Unmap, once the last view has gone."""
        self._layouts.clear()
        super().close()
        self.region = self.view()


class _WrittenLayout:
    """Where the tensors of a batch were written; `views` once the same layout came again."""

    __slots__ = ("blocks", "views")

    def __init__(self, blocks: tuple[TensorBlock, ...]) -> None:
        self.blocks = blocks
        self.views: list[dict[str, Array]] = []

    def write(self, members: Sequence[Tensors]) -> bool:
        """Write tensors that fit there; False, with some of them written, where they do not."""
        views_of_members = self.views
        if not views_of_members:
            return False
        for tensors, views in zip(members, views_of_members, strict=True):
            if len(tensors) != len(views):
                return False
            for name, view in views.items():
                array = tensors.get(name)
                if array is None or array.shape != view.shape or array.dtype != view.dtype:
                    return False
                view[...] = array
        return True


class BatchWriter(RegionWriter):
    """The side that writes batches, behind `member_bytes` for each member. Layouts are kept as long
    as the region."""

    def __init__(self, member_bytes: int = 0) -> None:
        super().__init__()
        self._member_bytes = member_bytes
        self._layouts: dict[int, _WrittenLayout] = {}

    def pack(self, members: Sequence[Tensors]) -> tuple[TensorBlock, ...]:
        """Write every member's tensors; raises as `backends.process.layout.pack`."""
        count = len(members)
        kept = self._layouts.get(count)
        if kept is not None and kept.write(members):
            return kept.blocks
        blocks = tuple(pack(members, self, count * self._member_bytes))
        self._keep(blocks, count)
        return blocks

    def _keep(self, blocks: tuple[TensorBlock, ...], count: int) -> None:
        if count > _MOST_MEMBERS or not all(BY_NAME[block.datatype].itemsize for block in blocks):
            return
        kept = self._layouts.get(count)
        if kept is None or kept.blocks != blocks:
            self._layouts[count] = _WrittenLayout(blocks)
        elif not kept.views:
            kept.views = unpack(blocks, count, self.region)

    def close(self) -> None:
        """Unmap; see `RegionWriter.close`. So it does when a batch needs a larger region."""
        self._layouts.clear()
        super().close()
