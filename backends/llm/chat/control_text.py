"""Text in a chat's messages that reads like a control token, kept from becoming one. Pure.

A template writes `<|im_start|>`, and the tokeniser makes one token of it. The same letters in what
a user wrote would make the same token, and the user could play the system. So a mark is put inside
every such text before the template renders (`guarded`), and `Tokeniser.encode` with `marked` cuts
there: what was marked becomes plain text, letter for letter, and the template's own tokens stay
tokens. A chat that has no such text is rendered and tokenised exactly as without all this.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from backends.llm.chat.template import Chat

MARK = "\ufdd0\ufdd1"
"""Two code points that Unicode keeps for no character. One who sends them himself loses them."""

_MARKER = re.compile(r"[<\[].*[>\]]", re.DOTALL)
_OWN_WORDS = ("content", "reasoning_content", "reasoning", "thinking")
_Trie = dict[str, Any]
_END = ""


def markers_among(texts: Iterable[str]) -> tuple[str, ...]:
    """Added tokens that structure a chat though the checkpoint does not call them special, such as
    `<tool_call>` and `<think>`; runs of spaces and the like are not among them."""
    return tuple(one for one in texts if len(one) > 2 and _MARKER.fullmatch(one))


class ControlText:
    """The texts of a vocabulary's control tokens. `specials` are marked everywhere; `markers` but
    for what an assistant said, where templates look for them (`</think>`) and models wrote them."""

    def __init__(self, specials: Iterable[str] = (), markers: Iterable[str] = ()) -> None:
        self._special = _Finder(specials)
        self._any = _Finder((*self._special.texts, *markers))

    def guarded(self, chat: Chat) -> Chat:
        """The chat with a mark inside every text that reads like a control token: in messages, tool
        calls and results, tools, documents and template variables, names included. Raises
        RecursionError for JSON that is nested too deeply."""
        mark = self._any.marked
        return replace(
            chat,
            messages=[self._message(one) for one in chat.messages],
            tools=_each(chat.tools, mark),
            documents=_each(chat.documents, mark),
            variables=_each(chat.variables, mark),
        )

    def _message(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        own = _OWN_WORDS if message.get("role") == "assistant" else ()
        return {
            name: _each(value, (self._special if name in own else self._any).marked)
            for name, value in message.items()
        }


class _Finder:
    """Finds any of some texts in time that does not grow with how many they are."""

    def __init__(self, texts: Iterable[str]) -> None:
        # One letter cannot be cut in two, and no model's control token is that short.
        self.texts = tuple(sorted({one for one in texts if len(one) > 1}))
        self._firsts = frozenset(one[0] for one in self.texts)
        self._pattern = re.compile(_alternatives(_trie(self.texts))) if self.texts else None

    def marked(self, text: str) -> str:
        """`text`, with a mark inside each of the texts, those that overlap as well."""
        if self._pattern is None or not any(first in text for first in self._firsts):
            return text
        while self._pattern.search(text) is not None:
            text = self._pattern.sub(_cut, text)
        return text


def _cut(found: re.Match[str]) -> str:
    return found[0][0] + MARK + found[0][1:]


def _each(value: Any, mark: Any) -> Any:
    """`value` with every text in it marked, the names of its members too."""
    if isinstance(value, str):
        return mark(value)
    if isinstance(value, Mapping):
        return {mark(name): _each(one, mark) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_each(one, mark) for one in value]
    return value


def _trie(texts: Iterable[str]) -> _Trie:
    root: _Trie = {}
    for text in texts:
        node = root
        for letter in text:
            node = node.setdefault(letter, {})
        node[_END] = {}
    return root


def _alternatives(node: _Trie) -> str:
    """A pattern that decides letter by letter: Python tries the members of a plain list of
    alternatives one by one, and some vocabularies have 6,000."""
    written = ""
    while len(node) == 1 and _END not in node:
        ((letter, node),) = node.items()
        written += re.escape(letter)
    rest = [re.escape(letter) + _alternatives(below) for letter, below in node.items() if letter]
    if not rest:
        return written
    return f"{written}(?:{'|'.join(rest)}){'?' if _END in node else ''}"
