"""One request's or response's tensors as they travel with a message of their own.

Small ones, which nearly all are, go straight into the message's bytes; others by way of
`backends.process.region`.
"""

from typing import NamedTuple

from backends.process.layout import ALIGN_BYTES, TensorBlock, pack
from backends.process.region import INSIDE_BYTES, MessageBuffer
from backends.seam import Tensors
from repository.config.tensors import BY_DTYPE


class MessageTensors(NamedTuple):
    """`data`: the bytes to put into the message; `fd`: the descriptor to send with it, -1 for none,
    which is the caller's to close."""

    blocks: tuple[TensorBlock, ...]
    data: bytes
    fd: int


def pack_message(tensors: Tensors) -> MessageTensors:
    """Pack the tensors; any thread may call. Raises ValueError as `layout.pack`."""
    inside = _pack_inside(tensors)
    if inside is not None:
        return inside
    buffer = MessageBuffer()
    blocks = tuple(pack([tensors], buffer))
    return MessageTensors(blocks, *buffer.contents())


def _pack_inside(tensors: Tensors) -> MessageTensors | None:
    """Small tensors of numbers; None for others. A third of what a region's writing takes."""
    blocks: list[TensorBlock] = []
    pieces: list[bytes] = []
    end = 0
    for name, array in tensors.items():
        row = BY_DTYPE.get(array.dtype)
        if row is None or not row.itemsize:
            return None
        start = -(-end // ALIGN_BYTES) * ALIGN_BYTES
        size = array.nbytes
        if start + size > INSIDE_BYTES:
            return None
        if start > end:
            pieces.append(bytes(start - end))
        pieces.append(array.tobytes())
        blocks.append(TensorBlock(name, row.name, start, (array.shape,)))
        end = start + size
    return MessageTensors(tuple(blocks), b"".join(pieces), -1)
