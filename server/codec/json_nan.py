"""`NaN` and `Infinity` in JSON texts, read and rendered in a few passes over the bytes.

Called by `server.codec.json_text`. simdjson and orjson refuse these words, and Python's parser
holds the event loop for 4 s at 64 MiB. So they are replaced by three numbers that no data has, and
those by what was meant once the text is an array. orjson renders all three as `null`, which is
replaced by the word; rendering 4 million numbers took Python 2 s.
"""

import json
import math
import re
from typing import Any

import numpy as np
import orjson

from repository.config.tensors import Array
from server.codec.json_large import load_large

MOST_STRINGS = 1 << 12
"""Strings of a text that are stepped over one by one."""

_WORDS = (
    (b"-Infinity", b"-5.5e-299 ", -np.inf),
    (b"Infinity", b"-6.5e-299 ", np.inf),
    (b"NaN", b"-7e-299 ", np.nan),
)
"""Word, the number that stands for it, and its value. The sign and the blank keep a number from
being read together with a digit beside it: `1NaN2` stays malformed."""

_WIDTH = max(len(word) for word, _number, _value in _WORDS)
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*+"', re.DOTALL)


def holds_words(text: bytes) -> bool:
    """Whether `NaN` or `Infinity` is anywhere in `text`, strings included."""
    return b"NaN" in text or b"Infinity" in text


def load_large_with_words(text: bytes) -> dict[str, Any] | None:
    """The object in `text` as `load_large` reads it. None when it is malformed, has many strings,
    or has one of the words anywhere but among the floating point numbers of `inputs[].data`."""
    found = _replaced(text)
    if found is None:
        return None
    plain, expected = found
    document = load_large(plain)
    if document is None:
        return None
    entries = document.get("inputs")
    found_words = 0
    for entry in entries if type(entries) is list else ():
        if type(entry) is dict and isinstance(data := entry.get("data"), np.ndarray):
            entry["data"], count = _restored(data)
            found_words += count
    return document if found_words == expected else None


def _replaced(text: bytes) -> tuple[bytes, int] | None:
    """`text` with a number for each word outside of strings, and how many these were."""
    parts: list[bytes] = []
    count = position = 0
    for _ in range(MOST_STRINGS):
        quote = text.find(b'"', position)
        part = text[position : quote if quote >= 0 else len(text)]
        for word, number, _value in _WORDS:
            before = len(part)
            part = part.replace(word, number)
            count += (len(part) - before) // (len(number) - len(word))
        parts.append(part)
        if quote < 0:
            return b"".join(parts), count
        string = _STRING.match(text, quote)
        if string is None:
            return None
        parts.append(string[0])
        position = string.end()
    return None


def _restored(data: Array) -> tuple[Array, int]:
    """`data` with the words' values for their numbers, and how many these were."""
    if data.dtype != np.float64:
        return data, 0
    count = 0
    for _word, number, value in _WORDS:
        places = data == float(number)
        if found := int(np.count_nonzero(places)):
            data = np.where(places, value, data)
            count += found
    return data, count


def with_words(value: Any) -> Any:
    """`value`, part of a response, for orjson, with words where it would write `null`."""
    if isinstance(value, np.ndarray | np.floating):
        return _rendered(np.asarray(value)) if value.dtype.kind == "f" else value
    if type(value) is float:
        return value if math.isfinite(value) else orjson.Fragment(_word(value))
    if isinstance(value, dict):
        return {key: with_words(member) for key, member in value.items()}
    return [with_words(member) for member in value] if isinstance(value, list | tuple) else value


def _rendered(array: Array) -> Any:
    """A fragment; `array` itself where all of it is finite."""
    missing = array[~np.isfinite(array)]
    if not missing.size:
        return array
    if array.ndim == 0:
        return orjson.Fragment(_word(float(array)))
    text = orjson.dumps(array, option=orjson.OPT_SERIALIZE_NUMPY)
    chosen = [_equal(missing, value) for _word, _number, value in _WORDS]
    for (word, _number, _value), places in zip(_WORDS, chosen, strict=True):
        if places.all():
            return orjson.Fragment(text.replace(b"null", word))
    padded = np.frombuffer(bytearray(text.replace(b"null", b"null".rjust(_WIDTH))), np.uint8)
    ends = np.flatnonzero(padded == ord("n")) + len("null")
    for (word, _number, _value), places in zip(_WORDS, chosen, strict=True):
        for place, byte in enumerate(word.rjust(_WIDTH), -_WIDTH):
            padded[ends[places] + place] = byte
    return orjson.Fragment(padded.tobytes().replace(b" ", b""))


def _equal(array: Array, value: float) -> Array:
    return np.isnan(array) if math.isnan(value) else array == value


def _word(value: float) -> bytes:
    return json.dumps(value).encode()
