"""Where each field of a text-format config stands: a small scanner that needs no schema.

Protobuf forgets positions once it has parsed, and semantic complaints come after that. The
scanner reads on to the first thing it does not understand and keeps what it has seen until then.
"""

import re
from bisect import bisect_right
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

_TOKEN = re.compile(
    r"(?P<blank>\s+|#[^\n]*)"
    r"|(?P<string>\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*')"
    r"|(?P<word>[A-Za-z_]\w*)"
    r"|(?P<number>[-+]?\.?\d[\w.+-]*|-[A-Za-z]+)"
    r"|(?P<sign>.)",
    re.DOTALL,
)
_NO_INDEX = re.compile(r"(?<![\].])(?=\.|$)")
_CLOSING = {"{": "}", "<": ">"}
_DEEPEST = 32


@dataclass(frozen=True, slots=True)
class Mark:
    """One value in the text.

    `path` is the field's canonical path, every step with its index: "input[0].dims[1]". `value`
    is the token as written, or None for a message. `line`, `column` are those of the field's name
    (of the value, for the later elements of a list), `value_line`, `value_column` the value's.
    """

    path: str
    value: str | None
    line: int
    column: int
    value_line: int
    value_column: int


class Positions:
    """Lines and columns of one config; without `text` (a config from JSON) everything is at 0:0."""

    def __init__(self, where: Path, text: str | None = None) -> None:
        self.where = where
        self._text = text

    def at(self, path: str) -> tuple[int, int]:
        """Line and column of "input[0].dims" (no index means 0), else of what encloses it."""
        if self._text is None:
            return 0, 0
        target = canonical(path)
        while target:
            mark = self._by_path.get(target)
            if mark is not None:
                return mark.line, mark.column
            target = target.rpartition(".")[0]
        return 1, 1

    def given(self, path: str) -> bool:
        """Whether the text gives this field, were it with its default value."""
        return canonical(path) in self._by_path

    def keyed(self, path: str, key: object) -> str:
        """The path of the map entry with this key ("metric_tags[2]"), or `path` itself."""
        return self._by_key.get((canonical(path).removesuffix("[0]"), str(key)), path)

    @cached_property
    def marks(self) -> tuple[Mark, ...]:
        """Every value of the text, in its order."""
        return scan_marks(self._text or "")

    @cached_property
    def _by_key(self) -> dict[tuple[str, str], str]:
        """Paths of map entries by the map's path and the key; of equal keys the first."""
        found: dict[tuple[str, str], str] = {}
        for mark in self.marks:
            entry, _, field = mark.path.rpartition(".")
            if field == "key[0]":
                key = (mark.value or "").strip("\"'")
                found.setdefault((entry.rpartition("[")[0], key), entry)
        return found

    @cached_property
    def _by_path(self) -> dict[str, Mark]:
        return {mark.path: mark for mark in self.marks}


def canonical(path: str) -> str:
    """`path` with [0] where a step has no index."""
    return _NO_INDEX.sub("[0]", path)


def scan_marks(text: str) -> tuple[Mark, ...]:
    """Every value in `text` up to the first thing that is not text format."""
    walk = _Walk(text)
    with suppress(_NotTextFormat):
        walk.message("", "", 0)
    return tuple(walk.marks)


class _NotTextFormat(Exception):
    """The rest of the text cannot be walked; what was seen so far stands."""


class _TextToken(NamedTuple):
    kind: str
    text: str
    offset: int


class _Walk:
    """One pass over the tokens; `marks` grows as it goes."""

    def __init__(self, text: str) -> None:
        found = ((m.lastgroup or "", m.group(), m.start()) for m in _TOKEN.finditer(text))
        self._tokens = [_TextToken(*token) for token in found if token[0] != "blank"]
        self._tokens.append(_TextToken("end", "", len(text)))
        self._starts = [0, *(i + 1 for i, letter in enumerate(text) if letter == "\n")]
        self._next = 0
        self.marks: list[Mark] = []

    def message(self, prefix: str, closing: str, depth: int) -> None:
        """Walk fields until `closing`, which is taken too; "" closes at the end of the text."""
        counts: dict[str, int] = {}
        if depth > _DEEPEST:
            raise _NotTextFormat
        while self._peek().text != closing:
            if self._peek().text in (",", ";"):
                self._take()
                continue
            name = self._take()
            if name.kind != "word":
                raise _NotTextFormat
            if self._peek().text == ":":
                self._take()
            self._values(prefix, name, counts, depth)
        if closing:
            self._take()

    def _values(self, prefix: str, name: _TextToken, counts: dict[str, int], depth: int) -> None:
        if self._peek().text != "[":
            self._value(prefix, name, name, counts, depth)
            return
        self._take()
        place = name
        while self._peek().text != "]":
            if self._peek().text == ",":
                self._take()
                place = self._peek()
                continue
            self._value(prefix, name, place, counts, depth)
        self._take()

    def _value(
        self, prefix: str, name: _TextToken, place: _TextToken, counts: dict[str, int], depth: int
    ) -> None:
        index = counts.get(name.text, 0)
        counts[name.text] = index + 1
        path = f"{prefix}{name.text}[{index}]"
        token = self._take()
        if token.text in _CLOSING:
            self._mark(path, None, place, token)
            self.message(f"{path}.", _CLOSING[token.text], depth + 1)
            return
        if token.kind not in ("string", "word", "number"):
            raise _NotTextFormat
        self._mark(path, token.text, place, token)
        while token.kind == "string" and self._peek().kind == "string":
            self._take()

    def _mark(self, path: str, value: str | None, place: _TextToken, token: _TextToken) -> None:
        self.marks.append(Mark(path, value, *self._locate(place), *self._locate(token)))

    def _locate(self, token: _TextToken) -> tuple[int, int]:
        line = bisect_right(self._starts, token.offset)
        return line, token.offset - self._starts[line - 1] + 1

    def _peek(self) -> _TextToken:
        return self._tokens[self._next]

    def _take(self) -> _TextToken:
        token = self._tokens[self._next]
        if token.kind == "end":
            raise _NotTextFormat
        self._next += 1
        return token
