"""An answer that must be calls of tools, as a grammar's text: written by the front end, read by the
engine's process. Pure."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from backends.llm.grammar.spec import GrammarSpec
from backends.llm.tools.formats import FORMATS, ToolFormat


class Tool(NamedTuple):
    """`parameters`: a JSON schema of an object."""

    name: str
    parameters: Mapping[str, Any]


class ToolChoice(NamedTuple):
    """`many`: several calls may be made, else just one."""

    format: ToolFormat
    tools: tuple[Tool, ...]
    many: bool


def calls_of(choice: ToolChoice) -> GrammarSpec:
    """At least one call of one of the tools, and nothing else."""
    tools = [list(tool) for tool in choice.tools]
    return GrammarSpec("tools", json.dumps([choice.format.name, tools, choice.many]))


def read_choice(text: str) -> ToolChoice:
    """What `calls_of` has written."""
    format, tools, many = json.loads(text)
    return ToolChoice(FORMATS[format], tuple(Tool(*tool) for tool in tools), many)


def faults(parameters: Any) -> str | None:
    """What keeps a tool's parameters from being the schema of an object, as far as that shows
    without compiling it; None if nothing does."""
    if not isinstance(parameters, dict):
        return "an object: a JSON schema"
    kind = parameters.get("type", "object")
    if kind != "object":
        return "a schema of the type 'object'"
    if not _are_schemas(parameters.get("properties", {})):
        return "a schema whose 'properties' are an object of schemas"
    required: Sequence[Any] = parameters.get("required", ())
    if not isinstance(required, list | tuple) or not all(isinstance(one, str) for one in required):
        return "a schema whose 'required' is a list of names"
    return None


def _are_schemas(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(one, dict | bool) for one in value.values())
