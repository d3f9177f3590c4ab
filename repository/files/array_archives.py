"""Archives of arrays as numpy.savez writes them, told apart from other zip archives."""

import struct
import zipfile
from typing import BinaryIO

MOST_LIST_BYTES = 1 << 20
"""The longest list of members that is read: some ten thousand names."""

_END = struct.Struct("<4s8xII2x")
"""The end of an archive without a comment: signature, length and place of the list of members."""


def holds_arrays(file: BinaryIO) -> bool:
    """Whether every member of the zip archive is a .npy file. Raises OSError."""
    try:
        file.seek(-_END.size, 2)
        signature, list_bytes, _ = _END.unpack(file.read(_END.size))
        if signature != b"PK\x05\x06" or list_bytes > MOST_LIST_BYTES:
            return False
        with zipfile.ZipFile(file) as archive:
            names = archive.namelist()
    except (ValueError, struct.error, zipfile.BadZipFile):
        return False
    return bool(names) and all(name.endswith(".npy") for name in names)
