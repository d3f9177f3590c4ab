"""Refuse a message that is small on the wire and large once it is parsed, before it is. Pure.

An empty tensor is two bytes of a message and some 90 in memory: 60 MB of them, which 60 KB
compressed are, took 2.7 GB and held the loop for seconds. Fields are counted as protobuf's wire
format has them; what cannot be read here is refused, because the parser might make something of it.
"""

from functools import cache
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from server.admit import MOST_STRINGS
from server.errors import InvalidRequest, RequestTooLarge

FREE_BYTES = 64 * 1024
"""A message up to this is not looked at: it cannot take more than a few megabytes."""
MOST_FIELDS = MOST_STRINGS + (1 << 16)
"""Fields of a message and of all messages in it: each is an object."""
MOST_PACKED_BYTES = 1 << 23
"""Of whole numbers and booleans in typed contents and shapes: a byte becomes up to eight, and the
numbers are read one by one, 50 ns each."""

_VARINT, _FIXED64, _DELIMITED, _FIXED32 = 0, 1, 2, 5
_LONGEST_VARINT, _MOST_TAG = 10, 1 << 32
_FIXED_BYTES = {_FIXED64: 8, _FIXED32: 4}
_NUMBERS = frozenset(
    {
        FieldDescriptor.CPPTYPE_INT32,
        FieldDescriptor.CPPTYPE_INT64,
        FieldDescriptor.CPPTYPE_UINT32,
        FieldDescriptor.CPPTYPE_UINT64,
        FieldDescriptor.CPPTYPE_BOOL,
        FieldDescriptor.CPPTYPE_ENUM,
    }
)
_Plan = dict[int, "dict[int, Any] | None"]
"""Fields with something in them, by number: the plan of a message, None for packed numbers."""


def check_parsed_size(kind: type[Message], data: bytes) -> None:
    """Raises RequestTooLarge; InvalidRequest for what is no message."""
    if len(data) > FREE_BYTES:
        try:
            _ParsedSizeCounter().add(data, 0, len(data), _plan(kind.DESCRIPTOR))
        except (IndexError, ValueError):
            raise InvalidRequest(
                f"failed to parse the request as {kind.DESCRIPTOR.full_name}: it is no message"
            ) from None


@cache
def _plan(descriptor: Any) -> _Plan:
    plan: _Plan = {}
    for field in descriptor.fields:
        if field.message_type is not None:
            plan[field.number] = _plan(field.message_type)
        elif field.is_repeated and field.cpp_type in _NUMBERS:
            plan[field.number] = None
    return plan


class _ParsedSizeCounter:
    """What was found so far."""

    def __init__(self) -> None:
        self._fields = 0
        self._packed_bytes = 0

    def add(self, data: bytes, position: int, end: int, plan: _Plan) -> None:
        """The fields of the message between `position` and `end`. Raises RequestTooLarge, and
        IndexError or ValueError for what is none."""
        while position < end:
            self._fields += 1
            if self._fields > MOST_FIELDS:
                raise _too_large(f"more than {MOST_FIELDS} fields")
            tag, position = _varint(data, position)
            wire = tag & 7
            if tag >= _MOST_TAG:
                raise ValueError
            if wire == _VARINT:
                _, position = _varint(data, position)
            elif wire == _DELIMITED:
                size, position = _varint(data, position)
                if size > end - position:
                    raise ValueError
                if tag >> 3 in plan:
                    self._add_inside(data, position, position + size, plan[tag >> 3])
                position += size
            elif wire in _FIXED_BYTES:
                position += _FIXED_BYTES[wire]
            else:
                raise ValueError  # a group, which no message of ours has
        if position > end:
            raise ValueError

    def _add_inside(self, data: bytes, position: int, end: int, plan: "_Plan | None") -> None:
        if plan is not None:
            self.add(data, position, end, plan)
            return
        self._packed_bytes += end - position
        if self._packed_bytes > MOST_PACKED_BYTES:
            raise _too_large(f"more than {MOST_PACKED_BYTES} bytes of typed numbers")


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """The number at `position`, and where it ends."""
    byte = data[position]
    if byte < 0x80:
        return byte, position + 1
    number = 0
    for shift in range(_LONGEST_VARINT):
        byte = data[position + shift]
        number |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return number, position + shift + 1
    raise ValueError


def _too_large(what: str) -> RequestTooLarge:
    return RequestTooLarge(
        f"the message has {what}; send tensors in raw_input_contents, or split it"
    )
