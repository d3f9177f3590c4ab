"""Tools as a chat names them, calls of them in its history, and which must be called. Pure."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from backends.llm.grammar.tool_choice import Tool, ToolChoice, calls_of, faults
from backends.llm.tools.formats import ToolFormat
from backends.llm.tools.readers import NAME
from server.openai.request_fields import RequestFields
from server.openai.response_grammar import MAX_CHARACTERS, ResponseGrammar
from server.rest.openai_errors import BadField

MAX_TOOLS = 512

_CHOICES = ("none", "auto", "required")
_A_NAME = "1 to 64 letters, digits, '_' or '-'"
_NOTHING: Mapping[str, Any] = {"type": "object", "properties": {}}
"""Parameters of a tool that has none."""


@dataclass(frozen=True, slots=True)
class AllowedTools:
    """Tools that may be called. `must`: the answer is calls and nothing else, of one of `wanted`;
    `many`: there may be more than one call."""

    wanted: tuple[Tool, ...]
    must: bool
    many: bool

    @property
    def tools(self) -> Mapping[str, Mapping[str, Any]]:
        """Parameters by name."""
        return dict(self.wanted)

    def shape(self, format: ToolFormat) -> ResponseGrammar | None:
        """What an answer has to look like; None where it may say anything. Raises BadField."""
        if not self.must:
            return None
        grammar = calls_of(ToolChoice(format, self.wanted, self.many))
        if len(grammar.text) > MAX_CHARACTERS:
            raise BadField(
                f"the tools that may be called have {len(grammar.text)} characters; "
                f"{MAX_CHARACTERS} are allowed",
                "tools",
            )
        return ResponseGrammar(grammar, "tools")


def read_tools(
    fields: RequestFields,
) -> tuple[tuple[Mapping[str, Any], ...] | None, AllowedTools | None]:
    """What the template is given, and what may be called. Raises BadField."""
    given = fields.objects("tools", MAX_TOOLS) or ()
    tools = [_tool(RequestFields(one, f"tools[{at}]")) for at, one in enumerate(given)]
    _refuse_twice(tools)
    choice = fields.take("tool_choice")
    many = fields.flag("parallel_tool_calls", True)
    named = _named(fields, choice)
    if not tools and (named is not None or choice == "required"):
        raise BadField("tool_choice asks for a call, and there are no tools", "tool_choice")
    shown = tuple(map(_as_templates_have_it, tools, given)) or None
    if not tools or choice == "none":
        return shown, None
    if named is None:
        return shown, AllowedTools(tuple(tools), choice == "required", many)
    wanted = tuple(one for one in tools if one.name == named)
    if not wanted:
        known = ", ".join(f"'{one.name}'" for one in tools[:8])
        raise BadField(
            f"tool_choice names the function '{named:.80}'; tools have {known}",
            "tool_choice.function.name",
        )
    return shown, AllowedTools(wanted, True, False)


def read_calls(message: RequestFields) -> list[Mapping[str, Any]] | None:
    """Calls of an earlier answer; templates want their arguments as an object, not as text."""
    calls = message.objects("tool_calls", MAX_TOOLS)
    if not calls:
        return None
    return [
        _call(RequestFields(one, message.path(f"tool_calls[{at}]"))) for at, one in enumerate(calls)
    ]


def _tool(tool: RequestFields) -> Tool:
    kind = tool.needed("type")
    if kind != "function":
        path = tool.path("type")
        raise BadField(f"{path} is {kind!r:.80}; only 'function' is offered", path, "unsupported")
    function = tool.object("function")
    if function is None:
        raise tool.refused("function", None, "an object with a name")
    tool.finish()
    name = _name(function)
    function.text("description")
    function.flag("strict")  # docs/openai.md: arguments follow the schema where a call is required
    parameters = function.take("parameters")
    fault = None if parameters is None else faults(parameters)
    if fault is not None:
        path = function.path("parameters")
        raise BadField(
            f"the parameters of the tool '{name}' are no good; {path} must be {fault}", path
        )
    function.finish()
    return Tool(name, _NOTHING if parameters is None else parameters)


def _as_templates_have_it(tool: Tool, given: Mapping[str, Any]) -> Mapping[str, Any]:
    described = given["function"].get("description")
    shown = {"name": tool.name, "description": described or "", "parameters": tool.parameters}
    return {"type": "function", "function": shown}


def _name(function: RequestFields) -> str:
    name = function.needed("name")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise function.refused("name", name, _A_NAME)
    return name


def _refuse_twice(tools: list[Tool]) -> None:
    seen = set[str]()
    for at, tool in enumerate(tools):
        if tool.name in seen:
            path = f"tools[{at}].function.name"
            raise BadField(f"{path} is '{tool.name}', as that of a tool before it", path)
        seen.add(tool.name)


def _named(fields: RequestFields, choice: Any) -> str | None:
    """The one function that is to be called."""
    if choice is None or (isinstance(choice, str) and choice in _CHOICES):
        return None
    if not isinstance(choice, dict):
        known = ", ".join(f"'{one}'" for one in _CHOICES)
        wanted = f"{known}, or an object that names a function"
        raise fields.refused("tool_choice", choice, wanted)
    wanted_one = RequestFields(choice, "tool_choice")
    kind = wanted_one.needed("type")
    if kind != "function":
        raise wanted_one.refused("type", kind, "'function'")
    function = wanted_one.object("function")
    if function is None:
        raise wanted_one.refused("function", None, "an object with a name")
    wanted_one.finish()
    name = _name(function)
    function.finish()
    return name


def _call(call: RequestFields) -> Mapping[str, Any]:
    made = {"id": call.text("id"), "type": call.text("type") or "function"}
    if made["type"] != "function":
        raise call.refused("type", made["type"], "'function'")
    function = call.object("function")
    if function is None:
        raise call.refused("function", None, "an object with a name and arguments")
    called = {"name": _name(function), "arguments": _arguments(function)}
    function.finish()
    call.pass_over(("index",))
    call.finish()
    return {**made, "function": called}


def _arguments(function: RequestFields) -> Any:
    value = function.take("arguments")
    if value is None or value == "":
        return {}
    try:
        read = json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        read = None
    if not isinstance(read, dict):
        raise function.refused("arguments", value, "a JSON object as text")
    return read
