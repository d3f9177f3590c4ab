"""One call of a tool, read character by character as a model writes it.

Made by `backends.llm.tools.scanner` where a call begins. Pure.
"""

import json
import re
from collections.abc import Collection
from typing import Protocol

from backends.llm.tools.formats import ToolFormat
from backends.llm.tools.json_scanner import (
    COLON,
    DONE,
    FIRST_KEY,
    IN_STRING,
    KEY,
    NEXT,
    SPACES,
    VALUE,
    JsonScanner,
)

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
ARGUMENTS = frozenset(("arguments", "parameters"))
"""Either is taken in every format: models mix them up."""
LONGEST_HEAD = 256
"""Characters before the arguments of a call that begins with its name."""
_ID = re.compile(r"\s*[A-Za-z0-9_-]*\s*")
_MEMBERS = ARGUMENTS | {"name", "type", "id"}


class CallReader(Protocol):
    """`name`: of the tool, once it is certain that a tool is called. `done`: the call is whole."""

    name: str | None
    done: bool

    def take(self, char: str) -> bool:
        """Go on with a character; False if this is no call of a tool after all."""

    def run(self, text: str, at: int) -> int:
        """Go on with as many characters of `text` from `at` on as change nothing, perhaps none;
        where they end."""

    def arguments(self) -> str:
        """What has come of the arguments since this was last asked: always JSON as far as it goes.
        Nothing while there is no `name`."""


class ObjectReader:
    """`{"name": …, "arguments": {…}}` in any order; other members are passed over.

    `bare`: nothing before it shows that it is a call, so that it has arguments and no members that
    calls do not have.
    """

    def __init__(self, names: Collection[str], bare: bool) -> None:
        self.name: str | None = None
        self.done = False
        self._names = names
        self._bare = bare
        self._json = JsonScanner()
        self._said: str | None = None
        self._key = ""
        self._letters: list[str] = []
        self._arguments: list[str] | None = None
        self._is_argument = False

    def take(self, char: str) -> bool:
        place, depth = self._json.place, self._json.depth
        if not self._json.take(char):
            return False
        if depth == 0 and char != "{" and char not in SPACES:
            return False
        if depth == 1 and not self._member(place, char):
            return False
        if depth > 1 and self._is_argument and self._arguments is not None:
            self._arguments.append(char)
        if self._json.place == DONE:
            return self._close()
        if self._arguments is not None:
            self.name = self._said
        return True

    def run(self, text: str, at: int) -> int:
        end = self._json.run(text, at)
        if end > at and self._json.depth == 1:
            self._letters.append(text[at:end])
        elif end > at and self._is_argument and self._arguments is not None:
            self._arguments.append(text[at:end])
        return end

    def arguments(self) -> str:
        if self.name is None or not self._arguments:
            return ""
        found = "".join(self._arguments)
        self._arguments.clear()
        return found

    def _member(self, place: str, char: str) -> bool:
        """A character among the keys and values of the call itself."""
        if place in IN_STRING:
            self._letters.append(char)
            return self._string_ended() if self._json.place in (COLON, NEXT) else True
        if place in (KEY, FIRST_KEY) and char == '"':
            self._letters = [char]
        elif place == VALUE and char not in SPACES:
            return self._value_begins(char)
        return True

    def _string_ended(self) -> bool:
        text = json.loads("".join(self._letters))
        if self._json.place == COLON:
            self._key = text
            return not self._bare or text in _MEMBERS
        if self._key == "name":
            self._said = text
            return text in self._names
        return True

    def _value_begins(self, char: str) -> bool:
        self._letters = [char]
        self._is_argument = self._key in ARGUMENTS
        if self._is_argument:
            repeated, self._arguments = self._arguments is not None, [char]
            return char == "{" and not repeated
        return self._key != "name" or (char == '"' and self._said is None)

    def _close(self) -> bool:
        if self._arguments is None:
            if self._bare:
                return False
            self._arguments = ["{}"]
        self.name, self.done = self._said, True
        return self.name is not None


class NamedReader:
    """`name{…}`, between the two perhaps an id and what `format` has before an id and arguments."""

    def __init__(self, names: Collection[str], format: ToolFormat) -> None:
        self.name: str | None = None
        self.done = False
        self._names = names
        self._format = format
        self._head = ""
        self._json: JsonScanner | None = None
        self._arguments: list[str] = []

    def take(self, char: str) -> bool:
        if self._json is None:
            if char != "{":
                self._head += char
                return len(self._head) <= LONGEST_HEAD and self._left_of_head() is not None
            name = NAME.match(self._head)
            if name is None or name[0] not in self._names or self._left_of_head():
                return False
            self.name, self._json = name[0], JsonScanner()
        if not self._json.take(char):
            return False
        self._arguments.append(char)
        self.done = self._json.place == DONE
        return True

    def run(self, text: str, at: int) -> int:
        end = at if self._json is None else self._json.run(text, at)
        if end > at:
            self._arguments.append(text[at:end])
        return end

    def arguments(self) -> str:
        found = "".join(self._arguments)
        self._arguments.clear()
        return found

    def _left_of_head(self) -> str | None:
        """What is left of it behind the name and whole markers, which a marker may begin with; None
        if none does."""
        name = NAME.match(self._head)
        if name is None:
            return None
        left = self._head[name.end() :].strip()
        before_id, before_arguments = self._format.id_follows, self._format.arguments_follow
        if before_id and left.startswith(before_id):
            left = _ID.sub("", left[len(before_id) :], count=1)
        if left == before_arguments:
            return ""
        markers = (before_id, before_arguments)
        return left if any(one.startswith(left) for one in markers) else None
