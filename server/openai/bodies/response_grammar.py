"""What an answer must look like: `response_format`, and vLLM's guided fields. Pure."""

import json
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

from msgspec import Meta

from backends.llm.grammar.spec import GrammarSpec
from server.openai.bodies.request_fields import OnlyFalse, OpenAIBody, refuse_flags, refused, wanted
from server.rest.openai_errors import BadField

MAX_CHARACTERS = 1 << 18
"""Of a grammar."""
MAX_CHOICES = 4096

_A_SCHEMA = "a JSON schema: an object, or its text"

JsonSchema = Annotated[dict[str, Any] | str, wanted(_A_SCHEMA)]
GrammarText = Annotated[str, Meta(min_length=1), wanted("a string with at least one character")]
Choices = Annotated[
    list[Annotated[str, Meta(min_length=1)]],
    Meta(min_length=1, max_length=MAX_CHOICES),
    wanted(f"a list of 1 to {MAX_CHOICES} strings, none empty", entire=True),
]


class TextFormat(OpenAIBody, tag_field="type", tag="text", frozen=True):
    """Anything may be said."""


class JsonObjectFormat(OpenAIBody, tag_field="type", tag="json_object", frozen=True):
    """The answer is a JSON object."""


class NamedSchema(OpenAIBody, frozen=True):
    """A JSON schema. The answer follows it, also where `strict` is false."""

    schema: Annotated[dict[str, Any], wanted("an object: a JSON schema")]
    name: Any = None
    description: Any = None
    strict: bool | None = None


class JsonSchemaFormat(OpenAIBody, tag_field="type", tag="json_schema", frozen=True):
    """The answer follows a JSON schema."""

    json_schema: NamedSchema


ResponseFormat = Annotated[
    TextFormat | JsonObjectFormat | JsonSchemaFormat,
    Meta(extra={"tag": "'text', 'json_object' or 'json_schema'"}),
]


class StructuredOutputs(OpenAIBody, frozen=True):
    """vLLM's grammars; one of them."""

    json: JsonSchema | None = None
    regex: GrammarText | None = None
    choice: Choices | None = None
    grammar: GrammarText | None = None
    json_object: bool | None = None
    disable_fallback: OnlyFalse = None
    disable_any_whitespace: OnlyFalse = None


class ResponseGrammar(NamedTuple):
    """A grammar, and the field that asked for it."""

    grammar: GrammarSpec
    field: str


def read_shape(
    format: ResponseFormat | None,
    guided: Mapping[str, Any],
    structured: StructuredOutputs | None,
) -> ResponseGrammar | None:
    """The one grammar a body asks for, None for none. Raises BadField, also for two."""
    found: list[ResponseGrammar] = []
    if isinstance(format, JsonObjectFormat):
        found.append(ResponseGrammar(GrammarSpec("json_object"), "response_format"))
    elif isinstance(format, JsonSchemaFormat):
        text = json.dumps(format.json_schema.schema)
        spec = _spec("response_format.json_schema.schema", "json_schema", text)
        found.append(ResponseGrammar(spec, "response_format"))
    for name, value in guided.items():
        if value is not None:
            found.append(_guided(name, name.removeprefix("guided_"), value))
    if structured is not None:
        found += _structured(structured)
    if len(found) > 1:
        first, second = found[0].field, found[1].field
        raise BadField(f"{second} contradicts {first}; give one of them", second)
    return found[0] if found else None


def _structured(structured: StructuredOutputs) -> list[ResponseGrammar]:
    refuse_flags(structured, "structured_outputs")
    values = {name: getattr(structured, name) for name in ("json", "regex", "choice", "grammar")}
    found = [
        _guided(f"structured_outputs.{name}", name, value)
        for name, value in values.items()
        if value is not None
    ]
    if structured.json_object:
        found.append(ResponseGrammar(GrammarSpec("json_object"), "structured_outputs.json_object"))
    return found


def _guided(path: str, kind: str, value: Any) -> ResponseGrammar:
    match kind:
        case "json":
            spec = _spec(path, "json_schema", _schema_text(path, value))
        case "choice":
            spec = _spec(path, "choice", json.dumps(value, ensure_ascii=False))
        case "regex":
            spec = _spec(path, "regex", value)
        case _:
            spec = _spec(path, "lark", value)
    return ResponseGrammar(spec, path)


def _schema_text(path: str, value: dict[str, Any] | str) -> str:
    if isinstance(value, dict):
        return json.dumps(value)
    try:
        schema = json.loads(value)
    except (ValueError, RecursionError):
        schema = None
    if not isinstance(schema, dict):
        raise refused(path, value, _A_SCHEMA)
    return value


def _spec(path: str, kind: Any, text: str) -> GrammarSpec:
    if len(text) > MAX_CHARACTERS:
        raise BadField(f"{path} has {len(text)} characters; {MAX_CHARACTERS} are allowed", path)
    return GrammarSpec(kind, text)
