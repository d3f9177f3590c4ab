"""Messages between gateway and control process on a stream: four bytes of length, then msgpack."""

import asyncio
import struct

from control.gateways.messages import Message, Unknown, decode, encode

LARGEST_BYTES = 64 * 2**20
_LENGTH = struct.Struct(">I")


class BadFrame(Exception):
    """What arrived is no message; the connection is of no more use."""


async def read_frame(reader: asyncio.StreamReader) -> Message | Unknown | None:
    """The next message, None at the end. Raises BadFrame, ConnectionError."""
    try:
        (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        if length > LARGEST_BYTES:
            raise BadFrame(f"a frame of {length} bytes; the most is {LARGEST_BYTES}")
        return decode(await reader.readexactly(length))
    except asyncio.IncompleteReadError:
        return None
    except ValueError as error:
        raise BadFrame(f"a frame that is no message: {error}") from error


def pack_frame(message: Message) -> bytes:
    packed = encode(message)
    return _LENGTH.pack(len(packed)) + packed
