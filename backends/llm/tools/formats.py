"""The ways in which models write calls of tools, as data, and which one a chat template teaches.

`backends.llm.tools.scanner` reads answers by it, `backends.llm.grammar.tool_calls` writes grammars.
Pure.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Literal

Body = Literal["json", "named", "tags"]


@dataclass(frozen=True, slots=True)
class ToolFormat:
    """How a model writes calls.

    `begins`: markers before a call, or a list of calls. `end`: the marker behind it, "" for none.
    `bare`: an answer may also begin with a call, without a marker. `body`: "json" is an object with
    a name and arguments, or a list of such; "named" may also be the name, perhaps `id_follows` and
    an id, perhaps `arguments_follow`, and then the arguments; "tags" may also be what
    `backends.llm.tools.tags` reads. `separator`: may stand between two calls that share a marker.

    What a grammar writes: `call`, with NAME for the tool's name, before the arguments and behind
    them; `around_one` and `around_many` before and behind all calls, `around_each` each of them,
    `between` two. `short_ids`: the templates take ids of nine letters and digits only.
    """

    name: str
    begins: tuple[str, ...] = ()
    end: str = ""
    bare: bool = False
    body: Body = "json"
    id_follows: str = ""
    arguments_follow: str = ""
    separator: str = ""
    call: tuple[str, str] = ('{"name": "NAME", "arguments": ', "}")
    around_one: tuple[str, str] = ("", "")
    around_many: tuple[str, str] = ("", "")
    around_each: tuple[str, str] = ("", "")
    between: str = ""
    short_ids: bool = False

    @property
    def markers(self) -> tuple[str, ...]:
        """Texts that a model may have as special tokens; they have to be seen in an answer."""
        inside = (self.id_follows, self.arguments_follow)
        return tuple(filter(None, (*self.begins, self.end, *inside)))


HERMES = ToolFormat(
    "hermes",
    begins=("<tool_call>",),
    end="</tool_call>",
    around_each=("<tool_call>\n", "\n</tool_call>"),
    between="\n",
)
QWEN3_CODER = replace(HERMES, name="qwen3_coder", body="tags")
LLAMA3_JSON = ToolFormat(
    "llama3_json",
    begins=("<|python_tag|>",),
    bare=True,
    separator=";",
    call=('{"name": "NAME", "parameters": ', "}"),
    between="; ",
)
MISTRAL = ToolFormat(
    "mistral",
    begins=("[TOOL_CALLS]",),
    body="named",
    id_follows="[CALL_ID]",
    arguments_follow="[ARGS]",
    around_one=("[TOOL_CALLS][", "]"),
    around_many=("[TOOL_CALLS][", "]"),
    between=", ",
    short_ids=True,
)
MISTRAL_NAMED = replace(
    MISTRAL,
    name="mistral_named",
    call=("NAME[ARGS]", ""),
    around_one=("", ""),
    around_many=("", ""),
    around_each=("[TOOL_CALLS]", ""),
    between="",
)
GRANITE = ToolFormat(
    "granite",
    begins=("<|tool_call|>", "<tool_call>"),
    end="<|/tool_call|>",
    around_one=("<|tool_call|>[", "]"),
    around_many=("<|tool_call|>[", "]"),
    between=", ",
)
JSON = ToolFormat("json", bare=True, around_many=("[", "]"), between=", ")

_ALL = (HERMES, QWEN3_CODER, LLAMA3_JSON, MISTRAL, MISTRAL_NAMED, GRANITE, JSON)
FORMATS = {one.name: one for one in _ALL}
AUTO = "auto"

_LLAMA3 = re.compile(r'"name":.{0,80}"parameters":', re.DOTALL)
_TOOLS = re.compile(r"\btools\b")


def takes_tools(template: str) -> bool:
    """Whether a template looks at the tools it is given."""
    return _TOOLS.search(template) is not None


def detect_format(template: str, tokens: Collection[str] = ()) -> ToolFormat:
    """The format a template teaches; where its text does not say, the model's added `tokens` may.
    JSON alone is what is left."""
    if "[TOOL_CALLS]" in template:
        return MISTRAL_NAMED if "[ARGS]" in template else MISTRAL
    if "<tool_call>" in template and "<arg_key>" not in template:
        return QWEN3_CODER if "<function=" in template else HERMES
    if "<|tool_call|>" in template:
        return GRANITE
    if "<|python_tag|>" in template or _LLAMA3.search(template):
        return LLAMA3_JSON
    for format in (MISTRAL, GRANITE, LLAMA3_JSON):
        if format.begins[0] in tokens:
            return format
    return JSON
