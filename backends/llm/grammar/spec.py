"""What an answer must look like, as a request says it and as the engine follows it; no torch."""

from typing import Any, Literal, Protocol

from msgspec import Struct

GrammarKind = Literal["json_schema", "json_object", "regex", "choice", "lark", "tools"]


class GrammarSpec(Struct, frozen=True, array_like=True):
    """A grammar as text; the engine's process compiles it.

    `text`: of a `json_schema` its JSON, of a `choice` a JSON list of strings, of `json_object`
    nothing. Of `tools`, which is calls of some of them, what `backends.llm.grammar.tool_choice`
    writes.
    """

    kind: GrammarKind
    text: str = ""


class Grammar(Protocol):
    """A compiled grammar and how far one answer has come in it; used by the engine's thread alone.

    Whatever it raises fails its own request.
    """

    def allowed(self) -> Any:
        """Which tokens may come next: a bool tensor [vocabulary], or None for all."""

    def accept(self, token: int) -> bool:
        """Take the token that came; True when the answer is complete."""
