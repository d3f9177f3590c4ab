"""Gives memory of a cache's blocks back to the system, page by page, without freeing the tensor."""

import ctypes
import mmap
import sys
from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor

_DONTNEED = 4
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def can_discard(device: torch.device) -> bool:
    """Whether memory of tensors on a device can be given back while they live."""
    return _LIBC is not None and device.type == "cpu"


def discard(tensors: Iterable[Tensor], blocks: Sequence[int]) -> int:
    """Forget `blocks` of tensors whose first dimension they are; bytes that went back.

    They read as zeros afterwards, and take memory again when they are written. Only whole pages
    go, so neighbouring blocks give back more than scattered ones; 0 where the system cannot.
    """
    if _LIBC is None:
        return 0
    runs = list(_runs(blocks))
    return sum(_discard(tensor, first, end) for tensor in tensors for first, end in runs)


def _discard(tensor: Tensor, first: int, end: int) -> int:
    assert tensor.is_contiguous(), "a cache is contiguous, block by block. This is a bug."
    each, page = tensor.stride(0) * tensor.element_size(), mmap.PAGESIZE
    start = -(-(tensor.data_ptr() + first * each) // page) * page
    length = (tensor.data_ptr() + end * each) // page * page - start
    if length <= 0 or _LIBC is None:
        return 0
    failed = _LIBC.madvise(ctypes.c_void_p(start), ctypes.c_size_t(length), _DONTNEED)
    return 0 if failed else length


def _runs(blocks: Sequence[int]) -> Iterator[tuple[int, int]]:
    """First block and end of each run of neighbours."""
    first = previous = None
    for block in sorted(blocks):
        if first is None or previous is None:
            first = block
        elif block != previous + 1:
            yield first, previous + 1
            first = block
        previous = block
    if first is not None and previous is not None:
        yield first, previous + 1
