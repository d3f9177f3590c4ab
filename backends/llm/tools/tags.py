"""A call of a tool written with tags instead of JSON, as Qwen3-Coder writes it; made JSON here.

Made by `backends.llm.tools.scanner`, like the readers in `backends.llm.tools.readers`. Pure.
"""

import json
from collections.abc import Mapping
from typing import Any, NoReturn

FUNCTION, PARAMETER = "<function=", "<parameter="
END_FUNCTION, END_PARAMETER = "</function>", "</parameter>"
LONGEST_TAG = 256

_PYTHON = {"True": True, "False": False, "None": None}


class TagReader:
    """`<function=NAME><parameter=KEY>VALUE</parameter>…</function>`, with white space between the
    tags. A value is text; where the tool's parameters want something else there, it is read as
    JSON, if it is any. See `backends.llm.tools.readers.CallReader`; arguments come value by value.
    """

    def __init__(self, tools: Mapping[str, Mapping[str, Any]]) -> None:
        self.name: str | None = None
        self.done = False
        self._tools = tools
        self._tag = ""
        self._key: str | None = None
        self._value: list[str] = []
        self._keys: list[str] = []
        self._arguments: list[str] = []

    def take(self, char: str) -> bool:
        if self._key is not None:
            self._in_value(self._key, char)
            return True
        if char.isspace() and not self._tag:
            return True
        self._tag += char
        return self._in_name() if self.name is None else self._between()

    def run(self, text: str, at: int) -> int:
        return at  # a value ends at any ">"

    def arguments(self) -> str:
        found = "".join(self._arguments)
        self._arguments.clear()
        return found

    def _in_name(self) -> bool:
        name = _named(self._tag, FUNCTION)
        if name is None:
            return _may_be(self._tag, FUNCTION)
        if name not in self._tools:
            return False
        self.name, self._tag = name, ""
        self._arguments.append("{")
        return True

    def _between(self) -> bool:
        if self._tag == END_FUNCTION:
            self._arguments.append("}")
            self.done = True
            return True
        key = _named(self._tag, PARAMETER)
        if key is None:
            return END_FUNCTION.startswith(self._tag) or _may_be(self._tag, PARAMETER)
        self._key, self._tag = key, ""
        return key not in self._keys

    def _in_value(self, key: str, char: str) -> None:
        self._value.append(char)
        size = len(END_PARAMETER)
        if char != ">" or "".join(self._value[-size:]) != END_PARAMETER:
            return
        text = "".join(self._value[:-size]).removeprefix("\n").removesuffix("\n")
        said = json.dumps(self._read(key, text), ensure_ascii=False)
        self._arguments.append(f"{', ' if self._keys else ''}{json.dumps(key)}: {said}")
        self._keys.append(key)
        self._value.clear()
        self._key = None

    def _read(self, key: str, text: str) -> Any:
        properties = self._tools[self.name or ""].get("properties", {})
        wanted = properties.get(key)
        if not isinstance(wanted, dict) or wanted.get("type", "string") == "string":
            return text
        try:
            return _PYTHON[text] if text in _PYTHON else json.loads(text, parse_constant=_refuse)
        except (ValueError, RecursionError):
            return text


def _named(tag: str, opening: str) -> str | None:
    """The name in a tag that is whole."""
    if tag.startswith(opening) and tag.endswith(">"):
        return tag[len(opening) : -1].strip()
    return None


def _may_be(tag: str, opening: str) -> bool:
    if len(tag) < len(opening):
        return opening.startswith(tag)
    return tag.startswith(opening) and len(tag) <= LONGEST_TAG


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")
