"""What a file is, by its first bytes and never by its name. Pure.

Sources of the signatures: the formats' own documents; those of TensorRT engines were observed.
"""

import io
import pickletools
import struct
from enum import StrEnum
from itertools import islice

HEAD_BYTES = 64 << 10
"""How much of a file is looked at."""

_PICKLE_STEPS = 16
"""So many pickle instructions in a row are no accident of random bytes."""

_LONGEST_HEADER_BYTES = 100_000_000
_TEXT_CONTROLS = frozenset(b"\t\n\f\r\x1b")
_BINARY = bytes(code for code in range(32) if code not in _TEXT_CONTROLS) + b"\x7f"


class Content(StrEnum):
    """A kind of content, in the words of a message about it."""

    EMPTY = "nothing"
    TEXT = "text"
    DATA = "binary data"
    SAFETENSORS = "safetensors"
    NATIVE = "a native library or program"
    PICKLE = "a pickle"
    BYTECODE = "Python bytecode"
    ZIP = "a zip archive"
    COMPRESSED = "compressed data"
    HDF5 = "an HDF5 file"
    GGUF = "a GGUF model"
    NUMPY = "a NumPy array"
    TENSORRT = "a TensorRT engine"


_SIGNATURES: tuple[tuple[bytes, Content], ...] = (
    (b"\x7fELF", Content.NATIVE),
    *(
        (magic.to_bytes(4, order), Content.NATIVE)
        for magic in (0xFEEDFACE, 0xFEEDFACF)
        for order in ("little", "big")
    ),
    (b"\xca\xfe\xba\xbe", Content.NATIVE),
    (b"\xca\xfe\xba\xbf", Content.NATIVE),
    (b"!<arch>\n", Content.NATIVE),
    (b"\0asm", Content.NATIVE),
    (b"PK\x03\x04", Content.ZIP),
    (b"PK\x05\x06", Content.ZIP),
    (b"\x1f\x8b\x08", Content.COMPRESSED),
    (b"\xfd7zXZ\0", Content.COMPRESSED),
    (b"\x28\xb5\x2f\xfd", Content.COMPRESSED),
    (b"\x04\x22\x4d\x18", Content.COMPRESSED),
    (b"7z\xbc\xaf\x27\x1c", Content.COMPRESSED),
    (b"Rar!\x1a\x07", Content.COMPRESSED),
    (b"\x89HDF\r\n\x1a\n", Content.HDF5),
    (b"GGUF", Content.GGUF),
    (b"\x93NUMPY", Content.NUMPY),
    (b"ftrt", Content.TENSORRT),
    (b"ptrt", Content.TENSORRT),
)


def content_of(head: bytes, size_bytes: int) -> Content:
    """The kind of a file of `size_bytes` that begins with `head`, its first HEAD_BYTES."""
    if not size_bytes:
        return Content.EMPTY
    for magic, content in _SIGNATURES:
        if head.startswith(magic):
            return content
    if _is_windows_program(head):
        return Content.NATIVE
    if head[2:4] == b"\r\n" and head[1:2] in (b"\x0c", b"\x0d", b"\x0e"):
        return Content.BYTECODE
    if head.startswith(b"BZh") and head[4:10] == b"1AY&SY":
        return Content.COMPRESSED
    if _is_pickle(head):
        return Content.PICKLE
    if _is_safetensors(head, size_bytes):
        return Content.SAFETENSORS
    return Content.DATA if head.translate(None, _BINARY) != head else Content.TEXT


def _is_windows_program(head: bytes) -> bool:
    if not head.startswith(b"MZ") or len(head) < 64:
        return False
    (place,) = struct.unpack_from("<L", head, 60)
    return head[place : place + 4] == b"PE\0\0"


def _is_pickle(head: bytes) -> bool:
    """Whether it is a pickle of protocol 2 or later; those before have no mark, and are text."""
    if head[:1] != b"\x80" or head[1:2] not in (b"\2", b"\3", b"\4", b"\5"):
        return False
    opcodes = 0
    try:
        for _ in islice(pickletools.genops(io.BytesIO(head)), _PICKLE_STEPS):
            opcodes += 1
    except (ValueError, IndexError, OverflowError, struct.error):
        return len(head) == HEAD_BYTES and opcodes > 2  # its next argument is longer than the head
    return True


def _is_safetensors(head: bytes, size_bytes: int) -> bool:
    if len(head) < 9:
        return False
    (header_bytes,) = struct.unpack_from("<Q", head)
    return 2 <= header_bytes <= min(_LONGEST_HEADER_BYTES, size_bytes - 8) and head[8:9] == b"{"
