"""Calls of tools found in an answer's text, in whatever pieces it comes.

The text is cut where it comes from, never lost: what turns out to be no call is text again. Pure.
"""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from backends.llm.tools.formats import ToolFormat
from backends.llm.tools.readers import CallReader, NamedReader, ObjectReader
from backends.llm.tools.tags import TagReader

Tools = Mapping[str, Mapping[str, Any]]

SLICE = 4096
"""Characters looked at together: a text full of markers is copied from each of them on."""


class ContentText(NamedTuple):
    """Text that is no call."""

    text: str


class ToolCallStart(NamedTuple):
    """A call has begun; calls count from 0."""

    number: int
    name: str


class ToolCallArguments(NamedTuple):
    """The call's arguments go on: JSON text."""

    number: int
    text: str


class ToolCallEnd(NamedTuple):
    """The call is whole: its arguments are a JSON object."""

    number: int


class ToolCallAborted(NamedTuple):
    """The call that has begun breaks off; its whole source is `ContentText` next."""

    number: int


Event = ContentText | ToolCallStart | ToolCallArguments | ToolCallEnd | ToolCallAborted


class ToolScanner:
    """One answer to a request with `tools`: their parameters by their names.

    Any cutting of its text into pieces gives the same events, but for where `ContentText` and
    `ToolCallArguments` are cut. White space before a call's marker and behind the last call belongs
    to the calls. `most`: so many calls are looked for, what else comes is text.
    """

    def __init__(self, format: ToolFormat, tools: Tools, most: int | None = None) -> None:
        self._format = format
        self._tools = tools
        self._most = most
        self._take = self._text
        self._held = ""  # in text: what may yet belong to a call
        self._source: list[str] = []  # elsewhere: what has come since the last text or whole call
        self._reader: CallReader | None = None
        self._bare = self._at_start = format.bare
        self._in_list = self._opened = False
        self._begun = self._ended = 0
        self._events: list[Event] = []

    def add(self, text: str) -> list[Event]:
        """What becomes certain with these characters."""
        for begin in range(0, len(text), SLICE):
            piece, at = text[begin : begin + SLICE], 0
            while at < len(piece):
                at = self._take(piece, at)
        self._argue()
        return self._take_events()

    def end(self) -> list[Event]:
        """What is left when no more comes."""
        if self._take in (self._call, self._before_call):
            self._break()
        elif not self._closes("".join(self._source).strip()):
            self._say("".join(self._source))
        if self._held.strip() or not self._ended:
            self._say(self._held)
        self._held = ""
        self._source.clear()
        return self._take_events()

    # Where it stands: each takes characters of `text` from `at` on, and says where to go on.

    def _text(self, text: str, at: int) -> int:
        offset = at - len(self._held)
        held = self._held = self._held + text[at:]
        begins = () if self._full else self._format.begins
        if self._at_start and held.strip():
            self._at_start = False
            first = len(held) - len(held.lstrip())
            if held[first] in "{[":
                self._begin(first, first, bare=True)
                return first + offset
        found = [(place, one) for one in begins if (place := held.find(one)) >= 0]
        if found:
            place, marker = min(found)
            self._begin(place, place + len(marker))
            return place + len(marker) + offset
        sure = len(held[: len(held) - _unfinished(held, begins)].rstrip())
        self._say(held[:sure])
        self._held = held[sure:]
        return len(text)

    def _before_call(self, text: str, at: int) -> int:
        char = text[at]
        if char == "[" and not self._in_list:
            self._in_list = True
        elif not char.isspace():
            self._reader = self._made(char)
            self._take = self._call
            return at
        self._source.append(char)
        return at + 1

    def _call(self, text: str, at: int) -> int:
        reader = self._reader
        assert reader is not None
        while at < len(text):
            if (end := reader.run(text, at)) > at:
                self._source.append(text[at:end])
                at = end
                continue
            if not reader.take(text[at]):
                self._break()
                return at
            self._source.append(text[at])
            at += 1
            if reader.done:
                self._close()
                return at
        return at

    def _in_a_list(self, text: str, at: int) -> int:
        char = text[at]
        if char == "]":
            self._in_list = False
            self._take = self._after_calls
            self._source.clear()
            return at + 1
        if char == "," and not self._full:
            self._take = self._before_call
        elif not char.isspace():
            return self._back(at)
        self._source.append(char)
        return at + 1

    def _after_calls(self, text: str, at: int) -> int:
        end, separator = self._format.end, self._format.separator
        self._source.append(text[at])
        rest = "".join(self._source[-max(len(end), 1) :]).lstrip()
        if rest and rest == end:
            self._source.clear()
            self._take = self._text
        elif rest and rest == separator and not self._full:
            self._take = self._before_call
        elif not self._closes(rest):
            self._source.pop()
            return self._back(at)
        return at + 1

    # From one place to another.

    def _begin(self, begins: int, ends: int, bare: bool = False) -> None:
        """The held text has a marker there, or a call without one."""
        before = self._held[:begins].rstrip()
        self._say(before)
        self._source = list(self._held[len(before) : ends])
        self._held = ""
        self._bare, self._at_start, self._in_list = bare, False, False
        self._take = self._before_call

    def _made(self, first: str) -> CallReader:
        if self._format.body == "named" and first != "{":
            return NamedReader(self._tools, self._format)
        if self._format.body == "tags" and first == "<":
            return TagReader(self._tools)
        return ObjectReader(self._tools, self._bare)

    def _close(self) -> None:
        self._argue()
        self._events.append(ToolCallEnd(self._begun - 1))
        self._ended += 1
        self._reader, self._opened = None, False
        self._source.clear()
        self._take = self._in_a_list if self._in_list else self._after_calls

    def _break(self) -> None:
        """No call after all: its source is text, and text goes on."""
        self._argue()
        if self._opened:
            self._events.append(ToolCallAborted(self._begun - 1))
        self._reader, self._opened = None, False
        self._say("".join(self._source))
        self._source.clear()
        self._take = self._text

    def _back(self, at: int) -> int:
        """No further call: what has come since the last one may begin a text."""
        self._held = "".join(self._source)
        self._source.clear()
        self._take = self._text
        return at

    @property
    def _full(self) -> bool:
        return self._most is not None and self._ended >= self._most

    def _closes(self, rest: str) -> bool:
        """Whether what follows a call is, as far as it goes, what the format has there."""
        return self._format.end.startswith(rest) or rest == ""

    def _argue(self) -> None:
        reader = self._reader
        if reader is None or reader.name is None:
            return
        if not self._opened:
            self._events.append(ToolCallStart(self._begun, reader.name))
            self._opened = True
            self._begun += 1
        if text := reader.arguments():
            self._events.append(ToolCallArguments(self._begun - 1, text))

    def _say(self, text: str) -> None:
        if not text:
            return
        last = self._events[-1] if self._events else None
        if isinstance(last, ContentText):
            self._events[-1] = ContentText(last.text + text)
        else:
            self._events.append(ContentText(text))

    def _take_events(self) -> list[Event]:
        events, self._events = self._events, []
        return events


def _unfinished(text: str, markers: Collection[str]) -> int:
    """Length of the longest end of a text that is the beginning of a marker."""
    longest = max(map(len, markers), default=1) - 1
    for length in range(min(longest, len(text)), 0, -1):
        if any(one.startswith(text[-length:]) for one in markers):
            return length
    return 0
