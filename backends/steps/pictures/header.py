"""The head of a picture's file: its format and size, before anything of it is decoded. Pure.

A decoder takes as much time and memory as the head promises, or as the file has left; both are
known here after some microseconds.
"""

import struct
from typing import NamedTuple

import numpy as np

from repository.config.tensors import Array

MOST_SCANS = 100
"""Of a JPEG: each goes over the whole picture once more, and an honest one has a dozen."""

BYTES_PER_PIXEL = 5
"""Of a PNG, and of a JPEG whose scans have all colours. Measured per pixel: 10 of another JPEG, 12
where it has four colours, 17 of a WebP."""
_COEFFICIENTS, _FOUR_COLORS, _WEBP = 2, 3, 4
_PROGRESSIVE = (0xC2, 0xC6, 0xCA, 0xCE)

_JPEG, _PNG = b"\xff\xd8", b"\x89PNG\r\n\x1a\n"
_FRAMES = frozenset(
    (*range(0xC0, 0xC4), *range(0xC5, 0xC8), *range(0xC9, 0xCC), *range(0xCD, 0xD0))
)
_START_OF_SCAN, _END_OF_IMAGE = 0xDA, 0xD9
_BARE = frozenset((0x01, *range(0xD0, 0xD8)))
_MOST_SEGMENTS = 4096
_TRAILER = 1 << 16
"""Where the end of a PNG is looked for; other programs append data of their own."""


class BadPicture(ValueError):
    """The bytes are no picture that is taken here; the message says why."""


class PictureHeader(NamedTuple):
    """`format`: as Pillow names it. Sizes are pixels, as stored. `weight`: a pixel takes so many
    times `BYTES_PER_PIXEL` while it is decoded."""

    format: str
    width: int
    height: int
    weight: int = 1


def read_header(data: bytes) -> PictureHeader:
    """Raises BadPicture for bytes of another format, without a size, or that end too early."""
    if data.startswith(_JPEG):
        return _jpeg(data)
    if data.startswith(_PNG):
        return _png(data)
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return _webp(data)
    if not data:
        raise BadPicture("is empty; send a JPEG, PNG or WebP file")
    raise BadPicture(f"is not a JPEG, PNG or WebP file: it begins with {data[:8].hex(' ')}")


def _jpeg(data: bytes) -> PictureHeader:
    position, found = 2, None
    frame, colors = 0, 0
    for _ in range(_MOST_SEGMENTS):
        while data[position : position + 2] == b"\xff\xff":  # fill bytes
            position += 1
        if len(data) < position + 4 or data[position] != 0xFF:
            break
        marker = data[position + 1]
        if marker in _BARE:
            position += 2
            continue
        length = int.from_bytes(data[position + 2 : position + 4], "big")
        if marker in _FRAMES and len(data) >= position + 9:
            height, width = struct.unpack(">HH", data[position + 5 : position + 9])
            found = PictureHeader("JPEG", width, height)
            frame, colors = marker, data[position + 9] if len(data) > position + 9 else 0
        if marker == _START_OF_SCAN:
            apart = data[position + 4 : position + 5] < bytes((colors,))  # a scan for each colour
            if found is not None and (frame in _PROGRESSIVE or apart):
                found = found._replace(weight=_FOUR_COLORS if colors > 3 else _COEFFICIENTS)
            return _complete_jpeg(data, position, found)
        position += 2 + max(length, 2)
    raise BadPicture("is a damaged JPEG file, or cut short: its picture never begins")


def _complete_jpeg(data: bytes, scan: int, found: PictureHeader | None) -> PictureHeader:
    if found is None:
        raise BadPicture("is a damaged JPEG file: it does not say its size")
    markers = _markers(data, scan)
    if not np.count_nonzero(markers == _END_OF_IMAGE):
        raise BadPicture(f"is cut short: the JPEG file has no end after {len(data)} bytes")
    scans = np.count_nonzero(markers == _START_OF_SCAN)
    if scans > MOST_SCANS:
        raise BadPicture(f"is a JPEG file of {scans} scans, more than the {MOST_SCANS} allowed")
    return _sized(found)


def _markers(data: bytes, start: int) -> Array:
    """The bytes that follow an FF. 0.4 ms for a megabyte; `bytes.rfind`, whose shortest needles
    are slow, takes 4 ms."""
    octets = np.frombuffer(data, np.uint8, offset=start)
    found: Array = octets[1:][octets[:-1] == 0xFF]
    return found


def _png(data: bytes) -> PictureHeader:
    if len(data) < 24 or data[12:16] != b"IHDR":
        raise BadPicture("is a damaged PNG file, or cut short: it does not say its size")
    if b"IEND" not in data[-_TRAILER:]:
        raise BadPicture(f"is cut short: the PNG file has no end after {len(data)} bytes")
    width, height = struct.unpack(">II", data[16:24])
    return _sized(PictureHeader("PNG", width, height))


def _webp(data: bytes) -> PictureHeader:
    announced = int.from_bytes(data[4:8], "little") + 8
    if len(data) < announced:
        raise BadPicture(f"is cut short: the WebP file has {len(data)} of {announced} bytes")
    kind = data[12:16]
    if kind == b"VP8X" and len(data) >= 30:
        size = (int.from_bytes(data[24:27], "little"), int.from_bytes(data[27:30], "little"))
        return PictureHeader("WEBP", size[0] + 1, size[1] + 1, _WEBP)
    if kind == b"VP8L" and len(data) >= 25:
        bits = int.from_bytes(data[21:25], "little")
        return PictureHeader("WEBP", (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1, _WEBP)
    if kind == b"VP8 " and len(data) >= 30:
        width, height = struct.unpack("<HH", data[26:30])
        return _sized(PictureHeader("WEBP", width & 0x3FFF, height & 0x3FFF, _WEBP))
    raise BadPicture("is a damaged WebP file: it does not say its size")


def _sized(header: PictureHeader) -> PictureHeader:
    if not header.width or not header.height:
        raise BadPicture(f"is a {header.format} file of {header.width} × {header.height} pixels")
    return header
