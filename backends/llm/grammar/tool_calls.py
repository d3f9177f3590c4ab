"""Calls of tools as a grammar of llguidance's, in the way a format writes them.

Each tool's parameters are a grammar of their own, so that `$ref` in them means what it says.
"""

import json
import re
from collections.abc import Iterator, Mapping

from llguidance import LLMatcher

from backends.llm.errors import GrammarInvalid
from backends.llm.grammar.text import (
    JSON_OPTIONS,
    MAX_PROPERTIES,
    MAX_TEXT_BYTES,
    count_properties,
    refuse_combined,
)
from backends.llm.grammar.tool_choice import ToolChoice, read_choice

MOST_CALLS = 32
"""Of one answer: without a bound a small model may go on with calls until its limit."""


def tools_grammar(text: str, added: Mapping[str, int]) -> str:
    """`text`: as `backends.llm.grammar.tool_choice` writes it. `added`: tokens of their own by
    their texts; a marker is written as the token it is, for llguidance takes no letters for one
    that looks like a special token. Raises GrammarInvalid."""
    if len(text) > MAX_TEXT_BYTES:
        raise GrammarInvalid(
            f"the tools that may be called have {len(text)} bytes; at most {MAX_TEXT_BYTES} are "
            "taken"
        )
    choice = read_choice(text)
    properties = count_properties([tool.parameters for tool in choice.tools])
    if properties > MAX_PROPERTIES:
        raise GrammarInvalid(
            f"the tools that may be called name {properties} parameters; at most {MAX_PROPERTIES} "
            "are taken"
        )
    for tool in choice.tools:
        refuse_combined(f"the parameters of the tool '{tool.name}'", tool.parameters)
    schemas = [
        {"name": f"arguments_{at}", "json_schema": _schema(tool.parameters)}
        for at, tool in enumerate(choice.tools)
    ]
    return json.dumps({"grammars": [{"lark_grammar": _lark(choice, added)}, *schemas]})


def parameter_grammars(text: str) -> Iterator[tuple[str, str]]:
    """The name of each tool, with a grammar of its parameters alone. Raises GrammarInvalid naming
    one that has none."""
    for name, parameters in read_choice(text).tools:
        try:
            yield name, LLMatcher.grammar_from_json_schema(json.dumps(_schema(parameters)))
        except ValueError as error:
            raise GrammarInvalid(
                f"the parameters of the tool '{name}' cannot be read: {error}"
            ) from None


def _schema(parameters: Mapping[str, object]) -> dict[str, object]:
    return {"type": "object", **parameters, "x-guidance": JSON_OPTIONS}


def _lark(choice: ToolChoice, added: Mapping[str, int]) -> str:
    format = choice.format
    write = _Literals(format.markers, added)
    opens, closes = format.around_many if choice.many else format.around_one
    before, behind = format.around_each
    more = f"({write.of(format.between)} call){{0,{MOST_CALLS - 1}}}" if choice.many else ""
    tools = " | ".join(f"tool_{at}" for at in range(len(choice.tools)))
    rules = [
        f"start: {write.of(opens)} call {more} {write.of(closes)}",
        f"call: {write.of(before)} ({tools}) {write.of(behind)}",
    ]
    head, tail = format.call
    for at, tool in enumerate(choice.tools):
        named = write.of(head.replace("NAME", tool.name))
        rules.append(f"tool_{at}: {named} @arguments_{at} {write.of(tail)}")
    return "\n".join(rules) + "\n"


class _Literals:
    """Texts as Lark writes them, their markers as the tokens they may be."""

    def __init__(self, markers: tuple[str, ...], added: Mapping[str, int]) -> None:
        self._tokens = {one: added[one] for one in markers if one in added}
        self._cut = re.compile("|".join(map(re.escape, self._tokens)) or r"(?!)")

    def of(self, text: str) -> str:
        found, at = [], 0
        for marker in self._cut.finditer(text):
            found += [_quoted(text[at : marker.start()]), f"<[{self._tokens[marker[0]]}]>"]
            at = marker.end()
        return " ".join(filter(None, [*found, _quoted(text[at:])]))


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False) if text else ""
