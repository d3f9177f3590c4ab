"""What is drawn from what a grammar allows is in the grammar; a senseless grammar is refused."""

import json
import re
from collections import deque
from collections.abc import Callable
from typing import Any

import jsonschema_rs
import pytest

from backends.llm.errors import GrammarInvalid
from backends.llm.grammar.compiled import GrammarCompiler
from backends.llm.grammar.spec import GrammarKind, GrammarSpec
from backends.llm.grammar.thread import GrammarThread
from backends.llm.tokens.tokeniser import Tokeniser
from support.grammar import END, byte_level, random_answer, sentencepiece
from support.llm import byte_tokeniser

VOCABULARY = 512
SCHEMAS: dict[str, dict[str, Any]] = {
    "object": {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer"}},
        "required": ["name", "age"],
        "additionalProperties": False,
    },
    "list": {
        "type": "array",
        "items": {"type": "number", "minimum": -5.5, "maximum": 1000},
        "minItems": 1,
        "maxItems": 4,
    },
    "enum": {"enum": ["é", 10, None, {"a": [True]}]},
    "either": {"anyOf": [{"type": "boolean"}, {"const": "no"}, {"type": "null"}]},
    "tree": {
        "$ref": "#/$defs/node",
        "$defs": {
            "node": {
                "type": "object",
                "properties": {
                    "name": {"type": "string", "pattern": "^[a-z]{1,3}$"},
                    "left": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
                },
                "required": ["name", "left"],
                "additionalProperties": False,
            }
        },
    },
    "bounds": {"type": "integer", "minimum": -3, "maximum": 120},
    "day": {"type": "string", "format": "date"},
}


def compiler(make: Callable[[], Tokeniser] = byte_level) -> GrammarCompiler:
    return GrammarCompiler(make(), VOCABULARY, (END,))


BYTES, PIECES = compiler(byte_level), compiler(sentencepiece)
both = pytest.mark.parametrize(
    ("grammars", "tokeniser"),
    [(BYTES, byte_level()), (PIECES, sentencepiece())],
    ids=["byte-level", "sentencepiece"],
)


@both
@pytest.mark.parametrize("name", SCHEMAS)
def test_what_a_schema_allows_is_valid(
    grammars: GrammarCompiler, tokeniser: Tokeniser, name: str
) -> None:
    valid = jsonschema_rs.validator_for(SCHEMAS[name], validate_formats=True)
    spec = GrammarSpec("json_schema", json.dumps(SCHEMAS[name]))
    ended = 0
    for seed in range(30):
        tokens, complete = random_answer(grammars.compile(spec), seed)
        if complete:
            valid.validate(json.loads(tokeniser.decode(tokens)))
            ended += 1
    assert ended >= 10


@both
def test_a_json_object_is_any_object(grammars: GrammarCompiler, tokeniser: Tokeniser) -> None:
    ended = 0
    for seed in range(40):
        tokens, complete = random_answer(grammars.compile(GrammarSpec("json_object")), seed)
        if complete:
            assert isinstance(json.loads(tokeniser.decode(tokens)), dict)
            ended += 1
    assert ended


@both
@pytest.mark.parametrize("pattern", ["[a-c]+ (ja|no)", "[0-9]{3}-[é-ü]{2}", "é{2}|😀", "(?i)yes"])
def test_a_regex_is_matched_as_a_whole(
    grammars: GrammarCompiler, tokeniser: Tokeniser, pattern: str
) -> None:
    for seed in range(10):
        tokens, complete = random_answer(grammars.compile(GrammarSpec("regex", pattern)), seed)
        assert complete
        assert re.fullmatch(pattern, tokeniser.decode(tokens))


@both
def test_a_choice_is_one_of_its_strings(grammars: GrammarCompiler, tokeniser: Tokeniser) -> None:
    choices = ["no", "no 10", 'a "quoted\\" é😀', "line\nline"]
    spec = GrammarSpec("choice", json.dumps(choices))
    found = set()
    for seed in range(60):
        tokens, complete = random_answer(grammars.compile(spec), seed)
        assert complete
        found.add(tokeniser.decode(tokens))
    assert found == set(choices)


def test_a_lark_grammar_is_followed() -> None:
    spec = GrammarSpec("lark", 'start: "(" start? ")"')
    tokens, complete = random_answer(BYTES.compile(spec), 1)
    text = byte_level().decode(tokens)
    assert complete
    assert text == "(" * (len(text) // 2) + ")" * (len(text) // 2)


def test_the_end_token_comes_only_where_the_answer_may_end() -> None:
    grammar = BYTES.compile(GrammarSpec("regex", "ab+"))
    tokeniser = byte_level()
    may_end = [bool(grammar.allowed()[END])]
    for token in tokeniser.encode("abb"):
        assert not grammar.accept(token)
        may_end.append(bool(grammar.allowed()[END]))
    assert may_end == [False, False, True, True]


def test_an_answer_is_complete_when_nothing_can_follow() -> None:
    grammar = BYTES.compile(GrammarSpec("choice", '["ja", "no"]'))
    assert [grammar.accept(token) for token in byte_level().encode("ja")] == [False, True]


@pytest.mark.parametrize("ends", [(), (700,)])
def test_a_model_without_an_end_token_ends_where_nothing_can_follow(ends: tuple[int, ...]) -> None:
    grammar = GrammarCompiler(byte_level(), VOCABULARY, ends).compile(GrammarSpec("regex", "a{2}"))
    (token,) = byte_level().encode("a")
    assert grammar.allowed().nonzero().flatten().tolist() == [token]
    assert not grammar.accept(token)
    assert grammar.accept(token)


def test_answers_of_one_grammar_do_not_disturb_each_other() -> None:
    spec = GrammarSpec("regex", "abc")
    first, second = BYTES.compile(spec), BYTES.compile(spec)
    a, b, _ = byte_level().encode("abc")
    first.accept(a)
    assert first.allowed()[b]
    assert not second.allowed()[b]
    assert second.allowed()[a]


def test_logits_beyond_the_vocabulary_and_special_tokens_are_not_allowed() -> None:
    grammar = BYTES.compile(GrammarSpec("regex", "(?s).*"))
    allowed = grammar.allowed()
    assert len(allowed) == VOCABULARY
    assert not allowed[byte_level().size :].any()
    assert not allowed[:END].any()


def test_a_token_that_is_not_allowed_is_an_error() -> None:
    grammar = BYTES.compile(GrammarSpec("regex", "ab"))
    with pytest.raises(RuntimeError):
        grammar.accept(byte_level().encode("b")[0])


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        ("json_schema", '{"type":', "is no JSON: Expecting value"),
        ("json_schema", "[" * 60_000, "is no JSON"),
        ("json_schema", '{"items": ' * 200 + "{}" + "}" * 200, "recursion limit"),
        ("json_schema", "[]", "is no object"),
        ("json_schema", "false", "cannot be followed"),
        ("json_schema", '{"minimum": NaN}', "NaN is no JSON number"),
        ("json_schema", '{"type": "strin"}', "Invalid type: strin"),
        ("json_schema", '{"not": {"type": "object"}}', 'Unimplemented keys: ["not"]'),
        ("json_schema", '{"x-guidance": {"lenient": true}, "not": {}}', "Unimplemented keys"),
        ("json_schema", '{"$ref": "file:///etc/passwd"}', "does not fetch"),
        ("json_schema", '{"$ref": "#/$defs/none"}', "Pointer '/$defs/none' does not exist"),
        ("json_schema", '{"$ref": "#"}', "cannot be followed"),
        ("json_schema", '{"type": "string", "pattern": "("}', "unclosed group"),
        ("json_schema", '{"type": "string", "minLength": -1}', "for 'minLength', got -1"),
        ("json_schema", '{"enum": []}', "Unsatisfiable"),
        ("json_object", "{}", "a json_object has no text"),
        ("regex", "(", "unclosed group"),
        ("regex", "(" * 50_000, "the regex cannot be followed"),
        ("regex", r"(a)\1", "backreferences are not supported"),
        ("regex", "a(?=b)", "look-ahead"),
        ("regex", "", "the regex is empty"),
        ("regex", "()", "nothing but an empty answer"),
        ("regex", "a" * 70_000, "has 70000 bytes; at most 65536"),
        ("regex", "\ud800", "half a surrogate pair"),
        ("choice", "[]", "at least one string"),
        ("choice", "[1]", "at least one string"),
        ("choice", '"ja"', "at least one string"),
        ("choice", '["a", ""]', "is empty"),
        ("choice", json.dumps([str(one) for one in range(1001)]), "1001 strings; at most 1000"),
        ("choice", "ja", "is no JSON"),
        ("lark", "start: foo", 'unknown name: "foo"'),
        ("lark", 'start: ("a"', "Expected token ')'"),
        ("lark", "start: " + "(" * 30_000, "too deeply nested"),
        ("lark", 'start: %json {"type": "object"}', "give the schema as a json_schema"),
        ("yaml", "", "kinds are json_schema, json_object, regex, choice, lark"),
    ],
)  # fmt: skip
def test_a_senseless_grammar_is_refused_naming_the_fault(
    kind: GrammarKind, text: str, message: str
) -> None:
    with pytest.raises(GrammarInvalid) as caught:
        BYTES.compile(GrammarSpec(kind, text))
    assert message in str(caught.value)
    assert len(str(caught.value)) < 800


def test_a_schema_with_too_many_properties_is_refused() -> None:
    schema = {"items": {"properties": {str(index): {} for index in range(501)}}}
    with pytest.raises(GrammarInvalid, match="names 501 properties; at most 500"):
        BYTES.compile(GrammarSpec("json_schema", json.dumps(schema)))


PATTERNS = [{"type": "string", "pattern": f".*a{index}.*"} for index in range(11)]


@pytest.mark.parametrize(
    "schema",
    [
        {"allOf": PATTERNS},
        {"$defs": {"d": {"anyOf": PATTERNS}}, "$ref": "#/$defs/d", "pattern": "x"},
        {"properties": {"a": {"anyOf": PATTERNS, "minLength": 1}}},
    ],
)
def test_a_schema_that_combines_many_patterns_is_refused(schema: dict[str, Any]) -> None:
    """14 of them took 8 s and 600 MB of the engine's memory; 20 had not ended after 25 s."""
    with pytest.raises(GrammarInvalid, match=r"combines schemas .* at most 10 are taken"):
        BYTES.compile(GrammarSpec("json_schema", json.dumps(schema)))


def test_many_patterns_that_are_not_combined_are_taken() -> None:
    schema = {"type": "object", "properties": {str(at): one for at, one in enumerate(PATTERNS)}}
    assert BYTES.compile(GrammarSpec("json_schema", json.dumps(schema)))


def test_a_grammar_that_becomes_too_complex_fails_while_it_is_followed() -> None:
    grammar = BYTES.compile(GrammarSpec("regex", "((a{0,50}){0,50}){0,50}b"))
    (token,) = byte_level().encode("a")
    with pytest.raises(RuntimeError, match="too many"):
        deque(map(grammar.accept, [token] * 200))


def test_a_tokeniser_that_writes_no_bytes_is_refused_by_name() -> None:
    from tokenizers import Tokenizer, models

    words = Tokeniser(Tokenizer(models.WordLevel({"<unk>": 0, "a": 1}, unk_token="<unk>")))
    with pytest.raises(GrammarInvalid, match="the regex cannot be compiled"):
        GrammarCompiler(words, 2, ()).compile(GrammarSpec("regex", "a"))


def test_rules_that_name_each_other_do_not_overflow_the_stack() -> None:
    rules = "".join(f"r{index}: r{index + 1}\n" for index in range(4500))
    spec = GrammarSpec("lark", f'start: r0\n{rules}r4500: "a"+')
    grammar = GrammarThread(BYTES)(spec).result(timeout=60.0)
    (token,) = byte_level().encode("a")
    assert not grammar.accept(token)
    assert grammar.allowed()[END]


def test_grammars_are_compiled_in_turn_on_a_thread_that_ends() -> None:
    import threading

    begin = GrammarThread(compiler())
    futures = [begin(GrammarSpec("regex", text)) for text in ("a+", "(", "b+", "a+")]
    results = [future.exception(timeout=60.0) for future in futures]
    assert [type(one) for one in results] == [type(None), GrammarInvalid, type(None), type(None)]
    for thread in threading.enumerate():
        if thread.name == "grammars":
            thread.join(60.0)
            assert not thread.is_alive()
    assert begin(GrammarSpec("regex", "c")).result(timeout=60.0)


def test_a_small_vocabulary_is_no_hindrance() -> None:
    """The model knows fewer tokens than the tokeniser: the rest can never come."""
    grammar = GrammarCompiler(byte_tokeniser(), 60, (2,)).compile(GrammarSpec("regex", "[!-z]+"))
    assert len(grammar.allowed()) == 60
