"""A grammar as a request writes it, checked and put into llguidance's words.

Size is bounded here, because the library's own bounds leave gaps: ten thousand rules that name each
other end the process (its stack), five thousand properties take twelve seconds.
"""

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from llguidance import LLMatcher

from backends.llm.errors import GrammarInvalid
from backends.llm.grammar.spec import GrammarKind, GrammarSpec

if TYPE_CHECKING:
    from llguidance._lib import JsonCompileOptions

MAX_TEXT_BYTES = 1 << 16
MAX_PROPERTIES = 500
"""Optional ones may come in any subset: a single step of 1,000 takes 0.3 s, of 500 some 0.1 s."""
MAX_CHOICES = 1000
MAX_COMBINED = 10
"""Patterns and formats of a schema that may have to be followed at once: llguidance refuses 6 in
no time, 12 after 1 s, 14 after 8 s and 600 MB; 20 had not ended after 25 s."""
_COMBINING = frozenset({"$ref", "anyOf", "oneOf", "allOf"})
_ANNOTATIONS = frozenset(
    {"$schema", "$id", "$defs", "definitions", "$comment", "title", "description", "default"}
    | {"examples", "type"}
)
JSON_OPTIONS: "JsonCompileOptions" = {
    # Without an upper bound a small model may go on with spaces until its limit.
    "whitespace_pattern": r"[ \n]{1,20}",
    "lenient": False,
    "coerce_one_of": False,
}


def guidance_text(spec: GrammarSpec) -> str:
    """Raises GrammarInvalid naming the fault."""
    if spec.kind not in _WRITERS:
        raise GrammarInvalid(
            f"a grammar of kind '{spec.kind}' is unknown; kinds are {', '.join(_WRITERS)}"
        )
    try:
        size = len(spec.text.encode())
    except UnicodeEncodeError:
        raise GrammarInvalid(f"the {spec.kind} holds half a surrogate pair") from None
    if size > MAX_TEXT_BYTES:
        raise GrammarInvalid(
            f"the {spec.kind} has {size} bytes; at most {MAX_TEXT_BYTES} are taken"
        )
    return _WRITERS[spec.kind](spec.text)


def _json_schema(text: str) -> str:
    schema = _read_json("json_schema", text)
    if isinstance(schema, bool):
        schema = {} if schema else {"not": {}}
    if not isinstance(schema, dict):
        raise GrammarInvalid("the json_schema is no object")
    properties = count_properties(schema)
    if properties > MAX_PROPERTIES:
        raise GrammarInvalid(
            f"the json_schema names {properties} properties; at most {MAX_PROPERTIES} are taken"
        )
    refuse_combined("the json_schema", schema)
    return _from_schema(schema)


def _json_object(text: str) -> str:
    if text:
        raise GrammarInvalid("a json_object has no text; give its schema as a json_schema")
    return _from_schema({"type": "object"})


def _from_schema(schema: dict[str, Any]) -> str:
    try:
        return LLMatcher.grammar_from_json_schema(json.dumps(schema), overrides=JSON_OPTIONS)
    except ValueError as error:
        raise GrammarInvalid(f"the json_schema cannot be read: {error}") from None


def _regex(text: str) -> str:
    if not text:
        raise GrammarInvalid("the regex is empty; it would allow nothing but an empty answer")
    return LLMatcher.grammar_from_regex(text)


def _choice(text: str) -> str:
    choices = _read_json("choice", text)
    if not isinstance(choices, list) or not choices or set(map(type, choices)) != {str}:
        raise GrammarInvalid("the choice must be a list of at least one string")
    if len(choices) > MAX_CHOICES:
        raise GrammarInvalid(
            f"the choice has {len(choices)} strings; at most {MAX_CHOICES} are taken"
        )
    if "" in choices:
        raise GrammarInvalid("a string of the choice is empty; give at least one character")
    written = [json.dumps(one, ensure_ascii=False) for one in dict.fromkeys(choices)]
    return LLMatcher.grammar_from_lark(f"start: {' | '.join(written)}\n")


def _lark(text: str) -> str:
    if "%json" in text:
        raise GrammarInvalid("the lark holds %json; give the schema as a json_schema")
    return LLMatcher.grammar_from_lark(text)


_WRITERS: dict[GrammarKind, Callable[[str], str]] = {
    "json_schema": _json_schema,
    "json_object": _json_object,
    "regex": _regex,
    "choice": _choice,
    "lark": _lark,
}


def _read_json(kind: GrammarKind, text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise GrammarInvalid(f"the {kind} is no JSON: {error}") from None


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def count_properties(schema: Any) -> int:
    """Properties named anywhere."""
    return sum(
        len(one[name])
        for one in _objects(schema)
        for name in ("properties", "patternProperties")
        if isinstance(one.get(name), dict)
    )


def refuse_combined(what: str, schema: Any) -> None:
    """Raises GrammarInvalid for a schema that combines schemas (`allOf`, or `anyOf`, `oneOf` or
    `$ref` beside other keywords) and has many patterns and formats, whichever are combined."""
    combines, found = False, set()
    for one in _objects(schema):
        keywords = one.keys() - _ANNOTATIONS
        combines |= "allOf" in one or (len(keywords) > 1 and bool(keywords & _COMBINING))
        for name in ("pattern", "format"):
            if isinstance(value := one.get(name), str):
                found.add((name, value))
    if combines and len(found) > MAX_COMBINED:
        raise GrammarInvalid(
            f"{what} combines schemas (allOf, or anyOf, oneOf or $ref beside other keywords) and "
            f"has {len(found)} different patterns and formats; at most {MAX_COMBINED} are taken "
            "then"
        )


def _objects(schema: Any) -> Iterator[dict[str, Any]]:
    """Every object in a schema; without recursion, it may be deep."""
    left = [schema]
    while left:
        one = left.pop()
        if isinstance(one, dict):
            yield one
            left.extend(one.values())
        elif isinstance(one, list):
            left.extend(one)
