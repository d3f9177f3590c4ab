"""A JSON text followed character by character: whether it can go on so, and where it stands.
Pure."""

import re
from typing import Final

VALUE, FIRST_ITEM, FIRST_KEY, KEY, COLON, NEXT, DONE = (
    "value", "first item", "first key", "key", "colon", "next", "done",
)  # fmt: skip
STRING, ESCAPE, HEX, WORD = "string", "escape", "hex", "word"
IN_STRING: Final = frozenset((STRING, ESCAPE, HEX))

MAX_DEPTH = 128
"""What nests deeper is beyond what readers of JSON take."""
MAX_WORD = 400
SPACES: Final = frozenset(" \t\n\r")

_WORD_LETTERS = frozenset("+-.0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_WORD = re.compile(r"true|false|null|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_LETTERS = re.compile(r'[^"\\\x00-\x1f]*')
_HEX_DIGITS = frozenset("0123456789abcdefABCDEF")
_ESCAPED = frozenset('"\\/bfnrt')


class JsonScanner:
    """One JSON value. `place`: what is expected, or what has begun; `depth`: objects and lists that
    are open. A number or a word alone has no end of its own: it is never `DONE`."""

    __slots__ = ("_closers", "_hex", "_is_key", "_word", "place")

    def __init__(self) -> None:
        self.place = VALUE
        self._closers: list[str] = []
        self._is_key = False
        self._hex = 0
        self._word = ""

    @property
    def depth(self) -> int:
        return len(self._closers)

    def take(self, char: str) -> bool:
        """Go on with a character; False if no JSON goes on so, and then it is of no more use."""
        if self.place in IN_STRING:
            return self._in_string(char)
        if self.place == WORD:
            if char in _WORD_LETTERS:
                self._word += char
                return len(self._word) <= MAX_WORD
            if not _WORD.fullmatch(self._word):
                return False
            self._ended()
        return char in SPACES or self._structure(char)

    def run(self, text: str, at: int) -> int:
        """Where the letters of a string end that stand in `text` at `at`, and change nothing."""
        return _end_of_letters(text, at) if self.place == STRING else at

    def _in_string(self, char: str) -> bool:
        if self.place == ESCAPE:
            self.place, self._hex = (HEX, 4) if char == "u" else (STRING, 0)
            return char == "u" or char in _ESCAPED
        if self.place == HEX:
            self._hex -= 1
            if not self._hex:
                self.place = STRING
            return char in _HEX_DIGITS
        if char == '"' and self._is_key:
            self.place = COLON
        elif char == '"':
            self._ended()
        elif char == "\\":
            self.place = ESCAPE
        return char >= " "

    def _structure(self, char: str) -> bool:
        place = self.place
        if place in (VALUE, FIRST_ITEM) and not (place == FIRST_ITEM and char == "]"):
            return self._value(char)
        if char == '"' and place in (KEY, FIRST_KEY):
            self.place, self._is_key = STRING, True
        elif char == ":" and place == COLON:
            self.place = VALUE
        elif char == "," and place == NEXT and self._closers:
            self.place = KEY if self._closers[-1] == "}" else VALUE
        elif place in (NEXT, FIRST_KEY, FIRST_ITEM) and self._closers[-1] == char:
            self._closers.pop()
            self._ended()
        else:
            return False
        return True

    def _value(self, char: str) -> bool:
        if char in "{[":
            self._closers.append("}" if char == "{" else "]")
            self.place = FIRST_KEY if char == "{" else FIRST_ITEM
            return len(self._closers) <= MAX_DEPTH
        if char == '"':
            self.place, self._is_key = STRING, False
            return True
        self.place, self._word = WORD, char
        return char in _WORD_LETTERS

    def _ended(self) -> None:
        self.place = NEXT if self._closers else DONE


def _end_of_letters(text: str, at: int) -> int:
    found = _LETTERS.match(text, at)
    return at if found is None else found.end()
