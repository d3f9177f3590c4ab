"""What an answer must look like: `response_format`, and vLLM's guided fields. Pure."""

import json
from typing import Any, NamedTuple

from backends.llm.grammar.spec import GrammarSpec
from server.openai.request_fields import RequestFields
from server.rest.openai_errors import BadField

MAX_CHARACTERS = 1 << 18
"""Of a grammar."""
MAX_CHOICES = 4096

_FORMATS = "'text', 'json_object' or 'json_schema'"
_OUTPUTS = ("json", "regex", "choice", "grammar", "json_object")


class ResponseGrammar(NamedTuple):
    """A grammar, and the field that asked for it."""

    grammar: GrammarSpec
    field: str


def read_shape(fields: RequestFields) -> ResponseGrammar | None:
    """The one grammar a body asks for, None for none. Raises BadField, also for two."""
    found: dict[str, GrammarSpec] = {}
    if (shape := _response_format(fields)) is not None:
        found["response_format"] = shape
    for name in ("json", "regex", "choice", "grammar"):
        if (shape := _guided(fields, f"guided_{name}", name)) is not None:
            found[f"guided_{name}"] = shape
    for name in ("guided_decoding_backend", "guided_whitespace_pattern"):
        fields.only(name)
    structured = fields.object("structured_outputs")
    if structured is not None:
        for name in _OUTPUTS:
            if (shape := _guided(structured, name, name)) is not None:
                found[structured.path(name)] = shape
        for name in ("disable_fallback", "disable_any_whitespace"):
            structured.only(name, False)
        structured.finish()
    if len(found) > 1:
        first, second = list(found)[:2]
        raise BadField(f"{second} contradicts {first}; give one of them", second)
    return next((ResponseGrammar(grammar, field) for field, grammar in found.items()), None)


def _response_format(fields: RequestFields) -> GrammarSpec | None:
    wanted = fields.object("response_format")
    if wanted is None:
        return None
    kind = wanted.needed("type")
    match kind:
        case "text":
            shape = None
        case "json_object":
            shape = GrammarSpec("json_object")
        case "json_schema":
            shape = _json_schema(wanted)
        case _:
            raise wanted.refused("type", kind, _FORMATS)
    wanted.finish()
    return shape


def _json_schema(wanted: RequestFields) -> GrammarSpec:
    described = wanted.object("json_schema")
    if described is None:
        path = wanted.path("json_schema")
        raise BadField(f"you must provide {path}", path)
    described.pass_over(("name", "description"))
    described.flag("strict")  # the answer follows the schema either way
    schema = described.needed("schema")
    described.finish()
    if not isinstance(schema, dict):
        raise described.refused("schema", schema, "an object: a JSON schema")
    return _spec(described, "schema", "json_schema", json.dumps(schema))


def _guided(fields: RequestFields, name: str, kind: str) -> GrammarSpec | None:
    value = fields.take(name)
    if value is None:
        return None
    match kind:
        case "json":
            return _spec(fields, name, "json_schema", _schema_text(fields, name, value))
        case "json_object":
            return _object(fields, name, value)
        case "choice":
            return _spec(fields, name, "choice", _choices(fields, name, value))
    if not isinstance(value, str) or not value:
        raise fields.refused(name, value, "a string with at least one character")
    return _spec(fields, name, "regex" if kind == "regex" else "lark", value)


def _object(fields: RequestFields, name: str, value: Any) -> GrammarSpec | None:
    if not isinstance(value, bool):
        raise fields.refused(name, value, "true or false")
    return GrammarSpec("json_object") if value else None


def _schema_text(fields: RequestFields, name: str, value: Any) -> str:
    if isinstance(value, dict):
        return json.dumps(value)
    wanted = "a JSON schema: an object, or its text"
    if not isinstance(value, str):
        raise fields.refused(name, value, wanted)
    try:
        schema = json.loads(value)
    except (ValueError, RecursionError):
        raise fields.refused(name, value, wanted) from None
    if not isinstance(schema, dict):
        raise fields.refused(name, value, wanted)
    return value


def _choices(fields: RequestFields, name: str, value: Any) -> str:
    good = isinstance(value, list) and all(isinstance(one, str) and one for one in value)
    if not good or not 0 < len(value) <= MAX_CHOICES:
        raise fields.refused(name, value, f"a list of 1 to {MAX_CHOICES} strings, none empty")
    return json.dumps(value, ensure_ascii=False)


def _spec(fields: RequestFields, name: str, kind: Any, text: str) -> GrammarSpec:
    if len(text) > MAX_CHARACTERS:
        path = fields.path(name)
        raise BadField(f"{path} has {len(text)} characters; {MAX_CHARACTERS} are allowed", path)
    return GrammarSpec(kind, text)
