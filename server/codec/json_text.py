"""JSON texts of the REST door: parsed within limits, and rendered.

Called by `server.codec.json_infer`, `server.codec.json_generate` and `server.rest.app`; what a text
says is theirs.
"""

import json
from typing import Any

import numpy as np
import orjson

from repository.tensors import Array
from server.codec.json_large import LARGE_BYTES, load_large
from server.errors import Internal, InvalidRequest, ServingError, TooLarge

_QUOTE = ord('"')
_NO_MARKS = bytes(set(range(256)) - set(b'[]{}"'))
_STEPS = np.zeros(256, np.int8)
_STEPS[list(b"[{")], _STEPS[list(b"]}")] = 1, -1
_PIECE_BYTES = 1 << 16


class Pairs(list[tuple[str, Any]]):
    """The members of a JSON object in their order, with keys that occur twice kept twice."""


def load_document(text: bytes | memoryview, max_depth: int) -> dict[str, Any]:
    """The JSON object in `text`, nested no deeper than `max_depth`. Raises InvalidRequest.

    Takes `NaN` and `Infinity`. In a large text the numbers of `inputs[].data` come as arrays
    instead of lists.
    """
    raw = bytes(text) if isinstance(text, memoryview) else text
    _check_depth(raw, max_depth)
    document = _load(raw)
    if type(document) is not dict:
        raise _no_object()
    return document


def load_pairs(raw: bytes, max_depth: int) -> Pairs:
    """The JSON object in `raw`, as `load_document`; it and every object inside it as Pairs."""
    _check_depth(raw, max_depth)
    try:
        orjson.loads(raw)
        document = json.loads(raw, object_pairs_hook=Pairs)
    except orjson.JSONDecodeError as error:
        document = _load_tokens(raw, error, Pairs)
    if type(document) is not Pairs:
        raise _no_object()
    return document


def dump(document: dict[str, Any]) -> bytes:
    """Render a response. NaN and infinities become `NaN`, `Infinity`, as Triton writes them."""
    body = orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)
    if b"null" not in body:
        return body
    return json.dumps(
        document, default=lambda array: array.tolist(), separators=(",", ":")
    ).encode()


def unparsable(field: str, value: Any, expected: str) -> ServingError:
    """`field` is missing (None) or not the kind of JSON value it has to be, in Triton's words."""
    if value is None:
        return InvalidRequest(f"failed to parse the request: missing required field '{field}'")
    return Internal(
        f"Unable to parse '{field}': attempt to access JSON non-{expected} as {expected}"
    )


def _check_depth(raw: bytes, max_depth: int) -> None:
    if not (_holds_more_than(raw, max_depth, b"[") or _holds_more_than(raw, max_depth, b"{")):
        return
    marks = raw.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _NO_MARKS)
    if _depth(np.frombuffer(marks, np.uint8)) > max_depth:
        raise TooLarge(
            f"the request JSON is nested deeper than the maximum of {max_depth} levels; "
            "use --http-max-json-depth to raise it"
        )


def _depth(marks: Array) -> int:
    """How deep the brackets among `marks` nest; those between quotes do not count.

    Piece by piece, each with a few passes of numpy: what a body costs is bounded by its bytes and
    not by what is in it.
    """
    level = deepest = 0
    in_string = False
    for start in range(0, len(marks), _PIECE_BYTES):
        piece = marks[start : start + _PIECE_BYTES]
        quoted = np.logical_xor.accumulate(piece == _QUOTE) ^ in_string
        levels = np.cumsum(np.where(quoted, 0, _STEPS[piece]), dtype=np.int32) + level
        level, in_string = int(levels[-1]), bool(quoted[-1])
        deepest = max(deepest, int(levels.max()))
    return deepest


def _holds_more_than(raw: bytes, most: int, mark: bytes) -> bool:
    """Hop from mark to mark: in a large flat body far cheaper than counting byte by byte."""
    position = -1
    for _ in range(most // 2 + 1):
        position = raw.find(mark, position + 1)
        if position < 0:
            return False
    return True


def _load(raw: bytes) -> Any:
    if len(raw) >= LARGE_BYTES:
        document = load_large(raw)
        if document is not None:
            return document
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        return _load_tokens(raw, error, dict)


def _load_tokens(raw: bytes, error: orjson.JSONDecodeError, kind: type) -> Any:
    """What orjson refused, in case it was for `NaN`; but no half characters, which nothing
    could be written back with."""
    try:
        document = json.loads(raw.decode(), object_pairs_hook=kind)
        if b"\\u" in raw:
            json.dumps(document, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        raise InvalidRequest(
            f"failed to parse the request JSON buffer: {_reason(error)} at {error.pos}"
        ) from error
    return document


def _reason(error: orjson.JSONDecodeError) -> str:
    reason = error.msg.partition(":")[0].strip()
    return reason[:1].upper() + reason[1:] + "." if reason else "Invalid value."


def _no_object() -> InvalidRequest:
    return InvalidRequest("failed to parse the request JSON buffer: expected an object at 0")
