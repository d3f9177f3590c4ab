"""Whether what a graph costs follows from the shapes of its inputs, whatever their values.

Of such a graph, executions that were short stay short, so they may run on the event loop's thread
(`schedulers.policy.inline`). Read from the file's protobuf without the package onnx, which the
serving process does not import; weights are passed over.
"""

import mmap
from collections.abc import Iterator
from pathlib import Path

from repository.model import ModelConfig

MOST_NODES = 512
"""A graph of more is not short."""

VALUE_DEPENDENT = frozenset({
    "AffineGrid", "BlackmanWindow", "CenterCropPad", "Col2Im", "ConstantOfShape", "DFT", "Expand",
    "EyeLike", "HammingWindow", "HannWindow", "If", "ImageDecoder", "Loop", "MaxUnpool",
    "MelWeightMatrix", "NonMaxSuppression", "OneHot", "Pad", "Range", "Resize", "STFT", "Scan",
    "SequenceMap", "Tile", "Unique", "Upsample",
})  # fmt: skip
"""Operators of ONNX that repeat, or make something as large, as a value says."""

DOMAINS = frozenset({"", "ai.onnx", "ai.onnx.ml"})
"""Whose other operators are known to be bounded."""

_GRAPH, _FUNCTIONS = 7, 25  # of ModelProto
_NODE = 1  # of GraphProto
_OP_TYPE, _DOMAIN = 4, 7  # of NodeProto
_LENGTH_DELIMITED = 2
_FIXED_BYTES = {1: 8, 5: 4}


def is_bounded(config: ModelConfig, path: Path) -> bool:
    """Of a model with this completed config and this graph; False where it cannot be told."""
    if any(dim < 0 for tensor in config.input for dim in tensor.dims):
        return False  # broadcasting makes a product of two lengths
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _has_only_bounded(data)
    except (OSError, ValueError, IndexError):
        return False


def _has_only_bounded(data: mmap.mmap) -> bool:
    nodes = 0
    for number, begin, end in _fields(data, 0, len(data)):
        if number == _FUNCTIONS:
            return False
        if number != _GRAPH:
            continue
        for inner, start, stop in _fields(data, begin, end):
            if inner == _NODE:
                nodes += 1
                if nodes > MOST_NODES or not _is_bounded_node(data, start, stop):
                    return False
    return True


def _is_bounded_node(data: mmap.mmap, begin: int, end: int) -> bool:
    operator = domain = ""
    for number, start, stop in _fields(data, begin, end):
        if number == _OP_TYPE:
            operator = data[start:stop].decode()
        elif number == _DOMAIN:
            domain = data[start:stop].decode()
    return domain in DOMAINS and operator not in VALUE_DEPENDENT


def _fields(data: mmap.mmap, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """The length-delimited fields of the message in `data[at:end]`: number, begin, end.

    Raises ValueError for what is no message, IndexError where it is cut short.
    """
    while at < end:
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == _LENGTH_DELIMITED:
            length, at = _varint(data, at)
            if at + length > end:
                raise IndexError
            yield number, at, at + length
            at += length
        elif wire == 0:
            _, at = _varint(data, at)
        elif wire in _FIXED_BYTES:
            at += _FIXED_BYTES[wire]
        else:
            raise ValueError(f"wire type {wire}")


def _varint(data: mmap.mmap, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number of more than ten bytes")
