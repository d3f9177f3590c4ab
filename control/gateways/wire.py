"""The bytes between control process and gateway: a desired state, and messages on a stream.

A state is msgpack; a message is four bytes of length, then msgpack.
"""

import asyncio
import struct

import msgspec
from msgspec import Struct

from control.desired import FORMAT, DesiredState
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


class _StateHead(Struct):
    """What a state must have: without it the bytes are no state, rather than an empty one."""

    format: int
    models: msgspec.Raw
    grants: msgspec.Raw


_state_decoder = msgspec.msgpack.Decoder(DesiredState)


def encode_state(desired: DesiredState) -> bytes:
    """For the link, and for a gateway's disk."""
    return msgspec.msgpack.encode(desired)


def decode_state(packed: bytes) -> DesiredState:
    """Raises ValueError for bytes that are no desired state, or of a later format."""
    try:
        head = msgspec.msgpack.decode(packed, type=_StateHead)
        if head.format > FORMAT:
            raise ValueError(f"desired state of format {head.format}, this build reads {FORMAT}")
        return _state_decoder.decode(packed)
    except msgspec.MsgspecError as error:
        raise ValueError(f"not a desired state: {error}") from error
