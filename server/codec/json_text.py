"""JSON texts of the REST listener: parsed within limits, and rendered.

Called by `server.codec.json_infer`, `server.codec.json_generate` and `server.rest.app`; what a text
says is theirs.
"""

import json
from typing import Any

import numpy as np
import orjson

from repository.config.tensors import Array
from server.admit import MOST_TENSORS
from server.codec.json_large import LARGE_BYTES, load_large
from server.codec.json_nan import holds_words, load_large_with_words, with_words
from server.errors import Internal, InvalidRequest, RequestTooLarge, ServingError

MOST_KEYS = 1 << 16
"""Keys of all objects of one text together: each becomes an object of Python's, some 100 bytes."""
MOST_CONTAINERS = 1 << 20
"""Arrays and objects of one text together; an empty one is 2 bytes there and 64 as an object."""
MOST_VALUES = 1 << 22
"""Members of all arrays and objects of one text that is read as Pairs, where each number is an
object: `generate` is for prompts, and large tensors have the infer verb."""
MOST_BYTES_WITH_WORDS = 1 << 20
"""A text with `NaN` or `Infinity` up to this long is read by Python's parser, which takes 50 ns a
byte (`load_pairs` has MOST_VALUES instead). In longer ones `server.codec.json_nan` reads them."""
_BINARY = "split it, or send tensors in the binary form"
_FEWER_KEYS = (
    "each input, requested output and parameter has some: an inference request may name "
    f"{MOST_TENSORS} inputs and {MOST_TENSORS} outputs, or as many as its model has"
)
_LEAST_KEY_BYTES, _LEAST_CONTAINER_BYTES = 4, 2
_BRIEF_BYTES = 1 << 14
"""A text up to this long cannot hold too many pieces, and counting its brackets is quick."""
_QUOTE = ord('"')
_NO_MARKS = bytes(set(range(256)) - set(b'[]{}":'))
_NO_COMMAS = bytes(set(range(256)) - set(b'",'))
_STEPS = np.zeros(256, np.int8)
_STEPS[list(b"[{")], _STEPS[list(b"]}")] = 1, -1
_PIECE_BYTES = 1 << 16


class Pairs(list[tuple[str, Any]]):
    """The members of a JSON object in their order, with keys that occur twice kept twice."""


def load_document(text: bytes | memoryview, max_depth: int) -> dict[str, Any]:
    """The JSON object in `text`, nested no deeper than `max_depth`. Raises InvalidRequest.

    Takes `NaN` and `Infinity`, in a text of more than MOST_BYTES_WITH_WORDS only among floating
    point numbers of `inputs[].data`. In a large text these numbers come as arrays, not as lists.
    """
    raw = bytes(text) if isinstance(text, memoryview) else text
    _check(raw, max_depth)
    document = _load(raw)
    if type(document) is not dict:
        raise _no_object()
    return document


def load_pairs(raw: bytes, max_depth: int) -> Pairs:
    """The JSON object in `raw`, as `load_document`; it and every object inside it as Pairs."""
    _check(raw, max_depth)
    if raw.count(b",") >= MOST_VALUES:
        _check_count(_count(_marks(raw, _NO_COMMAS), b",") + 1, MOST_VALUES, "values", _BINARY)
    try:
        orjson.loads(raw)
        document = json.loads(raw, object_pairs_hook=Pairs)
    except orjson.JSONDecodeError as error:
        document = _load_tokens(raw, error, Pairs)
    if type(document) is not Pairs:
        raise _no_object()
    return document


def dump(document: Any) -> bytes:
    """Render a response, or a part of one. NaN and infinities become `NaN`, `Infinity`, as Triton
    writes them."""
    body = orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)
    if b"null" not in body:
        return body
    return orjson.dumps(with_words(document), option=orjson.OPT_SERIALIZE_NUMPY)


def unparsable(field: str, value: Any, expected: str) -> ServingError:
    """`field` is missing (None) or not the kind of JSON value it has to be, in Triton's words."""
    if value is None:
        return InvalidRequest(f"failed to parse the request: missing required field '{field}'")
    return Internal(
        f"Unable to parse '{field}': attempt to access JSON non-{expected} as {expected}"
    )


def _check(raw: bytes, max_depth: int) -> None:
    """Refuse a text that is too deep, or of too many pieces, before an object is made of any.

    Raises RequestTooLarge.
    """
    if len(raw) <= _BRIEF_BYTES and raw.count(b"[") + raw.count(b"{") <= max_depth:
        return
    deep = _may_be_deep(raw, max_depth)
    keyed = _may_hold(raw, MOST_KEYS, _LEAST_KEY_BYTES, b":")
    parted = _may_hold(raw, MOST_CONTAINERS, _LEAST_CONTAINER_BYTES, b"[", b"{")
    if not (deep or keyed or parted):
        return
    marks = _marks(raw)
    if deep and _depth(marks) > max_depth:
        raise RequestTooLarge(
            f"the request JSON is nested deeper than the maximum of {max_depth} levels; "
            "use --http-max-json-depth to raise it"
        )
    if keyed:
        _check_count(_count(marks, b":"), MOST_KEYS, "keys", _FEWER_KEYS)
    if parted:
        _check_count(_count(marks, b"[{"), MOST_CONTAINERS, "arrays and objects", _BINARY)


def _check_count(count: int, most: int, what: str, advice: str) -> None:
    if count > most:
        raise RequestTooLarge(
            f"the request JSON has {count} {what}, more than the maximum of {most}; {advice}"
        )


def _may_be_deep(raw: bytes, max_depth: int) -> bool:
    most = max_depth // 2
    return _holds_more_than(raw, most, b"[") or _holds_more_than(raw, most, b"{")


def _may_hold(raw: bytes, most: int, least_bytes: int, *marks: bytes) -> bool:
    """Whether more than `most` pieces, each of which has one of `marks`, may be in `raw`."""
    if len(raw) <= most * least_bytes:
        return False
    return any(_holds_more_than(raw, most // len(marks), mark) for mark in marks)


def _marks(raw: bytes, dropped: bytes = _NO_MARKS) -> Array:
    """The brackets, colons and quotes of a text; of strings, only those that they hold as well."""
    kept = raw.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, dropped)
    return np.frombuffer(kept, np.uint8)


def _count(marks: Array, mark: bytes) -> int:
    """How many of `mark` are among `marks` outside of strings, piece by piece as in `_depth`."""
    found, in_string = 0, False
    is_wanted = np.zeros(256, np.bool_)
    is_wanted[list(mark)] = True
    for start in range(0, len(marks), _PIECE_BYTES):
        piece = marks[start : start + _PIECE_BYTES]
        quoted = np.logical_xor.accumulate(piece == _QUOTE) ^ in_string
        found += int(np.count_nonzero(is_wanted[piece] & ~quoted))
        in_string = bool(quoted[-1])
    return found


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
    for _ in range(most + 1):
        position = raw.find(mark, position + 1)
        if position < 0:
            return False
    return True


def _load(raw: bytes) -> Any:
    if len(raw) >= LARGE_BYTES:
        document = load_large(raw)
        if document is None and holds_words(raw):
            document = load_large_with_words(raw)
        if document is not None:
            return document
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        if len(raw) > MOST_BYTES_WITH_WORDS and holds_words(raw):
            raise _words_refused(raw, error) from error
        return _load_tokens(raw, error, dict)


def _words_refused(raw: bytes, error: orjson.JSONDecodeError) -> InvalidRequest:
    return InvalidRequest(
        f"failed to parse the request JSON buffer: {_reason(error)} at {error.pos}. In a request "
        f"JSON of more than {MOST_BYTES_WITH_WORDS} bytes (it has {len(raw)}), NaN and Infinity "
        "may stand only among the numbers of 'data' of inputs of FP16, BF16, FP32 and FP64; send "
        "tensors in the binary form"
    )


def _load_tokens(raw: bytes, error: orjson.JSONDecodeError, kind: type) -> Any:
    """What orjson refused, in case it was for `NaN`; but no half characters, which nothing
    could be written back with."""
    try:
        if not holds_words(raw):
            raise ValueError
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
