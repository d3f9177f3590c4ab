"""Frames between gateway and control process: four bytes of length, then a msgpack map."""

import asyncio
import struct
from typing import Any

import msgpack

LARGEST_BYTES = 64 * 2**20
_LENGTH = struct.Struct(">I")


class BadFrame(Exception):
    """What arrived is no frame; the connection is of no more use."""


async def read_frame(reader: asyncio.StreamReader) -> dict[str, Any] | None:
    """The next frame, None at the end. Raises BadFrame, ConnectionError."""
    try:
        (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        if length > LARGEST_BYTES:
            raise BadFrame(f"a frame of {length} bytes; the most is {LARGEST_BYTES}")
        frame = msgpack.unpackb(await reader.readexactly(length))
    except asyncio.IncompleteReadError:
        return None
    except (ValueError, msgpack.UnpackException) as error:
        raise BadFrame(f"a frame that is not msgpack: {error}") from error
    if not isinstance(frame, dict):
        raise BadFrame(f"a frame that is a {type(frame).__name__} instead of a map")
    return frame


def pack_frame(frame: dict[str, Any]) -> bytes:
    packed: bytes = msgpack.packb(frame)
    return _LENGTH.pack(len(packed)) + packed
