"""Tools as a chat names them, calls of them in its history, and which must be called. Pure."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from msgspec import Meta

from backends.llm.grammar.tool_choice import Tool, ToolChoice, calls_of, faults
from backends.llm.tools.formats import ToolFormat
from server.openai.bodies.request_fields import OpenAIBody, refused, wanted
from server.openai.bodies.response_grammar import MAX_CHARACTERS, ResponseGrammar
from server.rest.openai_errors import BadField

MAX_TOOLS = 512

_NOTHING: Mapping[str, Any] = {"type": "object", "properties": {}}
"""Parameters of a tool that has none."""

FunctionName = Annotated[
    str,
    Meta(pattern=r"^[A-Za-z0-9_-]{1,64}$(?!\n)"),
    wanted("1 to 64 letters, digits, '_' or '-'"),
]


class FunctionDefinition(OpenAIBody, frozen=True):
    """A function that may be called. Its arguments follow `parameters`, a JSON schema, where a call
    is required."""

    name: FunctionName
    description: str | None = None
    strict: bool | None = None
    parameters: Any = None


class ToolDefinition(OpenAIBody, frozen=True):
    """A tool that may be called: a function."""

    type: Annotated[Literal["function"], Meta(extra={"unsupported": "only 'function' is offered"})]
    function: Annotated[FunctionDefinition, Meta(extra={"absent": "an object with a name"})]


class NamedFunction(OpenAIBody, frozen=True):
    """The name of a function among the tools."""

    name: FunctionName


class NamedTool(OpenAIBody, frozen=True):
    """The one function that must be called."""

    type: Literal["function"]
    function: Annotated[NamedFunction, Meta(extra={"absent": "an object with a name"})]


class CalledFunction(OpenAIBody, frozen=True):
    """A function that an earlier answer called; `arguments` are an object, or its text."""

    name: FunctionName
    arguments: Any = None


class PriorToolCall(OpenAIBody, frozen=True):
    """A call of an earlier answer."""

    function: Annotated[
        CalledFunction, Meta(extra={"absent": "an object with a name and arguments"})
    ]
    id: str | None = None
    type: Annotated[Literal["function", ""], wanted("'function'")] | None = None
    index: Any = None


_LIST = wanted(f"a list of at most {MAX_TOOLS} objects")

ToolDefinitions = Annotated[list[ToolDefinition], Meta(max_length=MAX_TOOLS), _LIST]
PriorToolCalls = Annotated[list[PriorToolCall], Meta(max_length=MAX_TOOLS), _LIST]
ToolSelection = Annotated[
    Literal["none", "auto", "required"] | NamedTool,
    wanted("'none', 'auto', 'required', or an object that names a function"),
]


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
    given: Sequence[ToolDefinition] | None, choice: ToolSelection | None, many: bool
) -> tuple[tuple[Mapping[str, Any], ...] | None, AllowedTools | None]:
    """What the template is given, and what may be called. Raises BadField."""
    tools = [_tool(f"tools[{at}].function", one.function) for at, one in enumerate(given or ())]
    _refuse_twice(tools)
    named = choice.function.name if isinstance(choice, NamedTool) else None
    if not tools and (named is not None or choice == "required"):
        raise BadField("tool_choice asks for a call, and there are no tools", "tool_choice")
    shown = tuple(map(_as_templates_have_it, tools, given or ())) or None
    if not tools or choice == "none":
        return shown, None
    if named is None:
        return shown, AllowedTools(tuple(tools), choice == "required", many)
    found = tuple(one for one in tools if one.name == named)
    if not found:
        known = ", ".join(f"'{one.name}'" for one in tools[:8])
        raise BadField(
            f"tool_choice names the function '{named:.80}'; tools have {known}",
            "tool_choice.function.name",
        )
    return shown, AllowedTools(found, True, False)


def read_calls(calls: Sequence[PriorToolCall] | None, path: str) -> list[Mapping[str, Any]] | None:
    """Calls of an earlier answer; templates want their arguments as an object, not as text."""
    if not calls:
        return None
    return [_call(call, f"{path}[{at}].function") for at, call in enumerate(calls)]


def _tool(path: str, function: FunctionDefinition) -> Tool:
    parameters = function.parameters
    fault = None if parameters is None else faults(parameters)
    if fault is not None:
        path = f"{path}.parameters"
        raise BadField(
            f"the parameters of the tool '{function.name}' are no good; {path} must be {fault}",
            path,
        )
    return Tool(function.name, _NOTHING if parameters is None else parameters)


def _as_templates_have_it(tool: Tool, given: ToolDefinition) -> Mapping[str, Any]:
    described = given.function.description or ""
    shown = {"name": tool.name, "description": described, "parameters": tool.parameters}
    return {"type": "function", "function": shown}


def _refuse_twice(tools: Sequence[Tool]) -> None:
    names = set[str]()
    for at, tool in enumerate(tools):
        if tool.name in names:
            path = f"tools[{at}].function.name"
            raise BadField(f"{path} is '{tool.name}', as that of a tool before it", path)
        names.add(tool.name)


def _call(call: PriorToolCall, path: str) -> Mapping[str, Any]:
    called = {"name": call.function.name, "arguments": _arguments(call.function.arguments, path)}
    return {"id": call.id, "type": "function", "function": called}


def _arguments(value: Any, path: str) -> Any:
    if value is None or value == "":
        return {}
    try:
        read = json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        read = None
    if not isinstance(read, dict):
        raise refused(f"{path}.arguments", value, "a JSON object as text")
    return read
