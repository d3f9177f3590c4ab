"""Which format a template teaches, and that what a format's grammar allows is a call."""

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from backends.errors import LoadFailed
from backends.llm.chat.template import read_template
from backends.llm.errors import GrammarInvalid
from backends.llm.grammar.compiled import GrammarCompiler
from backends.llm.grammar.tool_choice import Tool, ToolChoice, calls_of
from backends.llm.settings import read_settings
from backends.llm.tokens.detokenise import Detokeniser
from backends.llm.tokens.tokeniser import Tokeniser
from backends.llm.tools.formats import FORMATS, ToolFormat, detect_format, takes_tools
from backends.llm.tools.scanner import (
    ContentText,
    ToolCallArguments,
    ToolCallEnd,
    ToolCallStart,
    ToolScanner,
)
from repository.model import ModelConfig, ModelVersion
from support.chat_templates import TEMPLATES
from support.grammar import END, byte_level, random_answer, sentencepiece

WEATHER = Tool(
    "weather",
    {
        "type": "object",
        "properties": {
            "place": {"$ref": "#/$defs/place"},
            "days": {"type": "integer", "minimum": 1, "maximum": 14},
        },
        "required": ["place", "days"],
        "additionalProperties": False,
        "$defs": {"place": {"type": "string", "maxLength": 6}},
    },
)
NOW = Tool("now-2", {"type": "object", "properties": {}, "additionalProperties": False})
TOOLS = (WEATHER, NOW)
VOCABULARY = 512


def marked(make: Any, special: bool) -> Tokeniser:
    """A tokeniser in which the markers of all formats are tokens of their own."""
    tokenizer = make()._tokenizer
    markers = sorted({marker for format in FORMATS.values() for marker in format.markers})
    (tokenizer.add_special_tokens if special else tokenizer.add_tokens)(markers)
    return Tokeniser(tokenizer)


TOKENISERS = {
    "byte-level": byte_level(),
    "byte-level, special": marked(byte_level, True),
    "byte-level, added": marked(byte_level, False),
    "sentencepiece, special": marked(sentencepiece, True),
}
COMPILERS = {name: GrammarCompiler(one, VOCABULARY, (END,)) for name, one in TOKENISERS.items()}


def text_of(tokeniser: Tokeniser, tokens: list[int], format: ToolFormat) -> str:
    detokeniser = Detokeniser(tokeniser, shown=format.markers)
    return "".join([*map(detokeniser.add, tokens), detokeniser.flush()])


@pytest.mark.parametrize("many", [False, True], ids=["one", "many"])
@pytest.mark.parametrize("format", FORMATS.values(), ids=FORMATS)
@pytest.mark.parametrize("name", TOKENISERS)
def test_whatever_a_grammar_allows_are_calls_with_valid_arguments(
    name: str, format: ToolFormat, many: bool
) -> None:
    spec = calls_of(ToolChoice(format, TOOLS, many))
    valid = {tool.name: jsonschema_rs.validator_for(dict(tool.parameters)) for tool in TOOLS}
    counts = set()
    for seed in range(12):
        tokens, complete = random_answer(COMPILERS[name].compile(spec), seed, 2000)
        text = text_of(TOKENISERS[name], tokens, format)
        if not complete:
            continue
        scanner = ToolScanner(format, dict(TOOLS))
        events = [*scanner.add(text), *scanner.end()]
        assert not [one for one in events if isinstance(one, ContentText)], text
        names = [event.name for event in events if isinstance(event, ToolCallStart)]
        assert names
        assert len([one for one in events if isinstance(one, ToolCallEnd)]) == len(names)
        for number, called in enumerate(names):
            said = [
                one.text
                for one in events
                if isinstance(one, ToolCallArguments) and one.number == number
            ]
            valid[called].validate(json.loads("".join(said)))
        counts.add(len(names))
    assert counts == {1} if not many else len(counts) > 1


def test_a_marker_that_is_a_special_token_is_written_as_that() -> None:
    format, name = FORMATS["mistral"], "byte-level, special"
    spec = calls_of(ToolChoice(format, TOOLS, many=False))
    allowed = COMPILERS[name].compile(spec).allowed().nonzero().flatten().tolist()
    assert allowed == [TOKENISERS[name].specials["[TOOL_CALLS]"]]


def test_special_tokens_are_shown_only_where_they_are_markers() -> None:
    tokeniser = TOKENISERS["byte-level, special"]
    written = "<bos>a<tool_call>é</tool_call>[ARGS]b"
    tokens = tokeniser.encode(written, special=False)
    assert tokeniser.specials["<tool_call>"] in tokens

    def read(**settings: Any) -> str:
        detokeniser = Detokeniser(tokeniser, **settings)
        return "".join([*map(detokeniser.add, tokens), detokeniser.flush()])

    assert read(shown=FORMATS["hermes"].markers) == "a<tool_call>é</tool_call>b"
    assert read(shown=("<nobody>",)) == read() == "aéb"
    assert read(skip_special=False, shown=("<tool_call>",)) == written


def refusal(*tools: Tool) -> str:
    with pytest.raises(GrammarInvalid) as caught:
        COMPILERS["byte-level"].compile(calls_of(ToolChoice(FORMATS["hermes"], tools, True)))
    return str(caught.value)


def test_parameters_that_cannot_be_followed_name_their_tool() -> None:
    bad = Tool("bad", {"type": "object", "properties": {"a": {"type": "strin"}}})
    assert refusal(NOW, bad, WEATHER) == (
        "the parameters of the tool 'bad' cannot be followed: Invalid type: strin"
    )
    unmet = Tool("unmet", {"properties": {"a": {"enum": []}}, "required": ["a"]})
    assert "the tool 'unmet'" in refusal(unmet)
    lenient = Tool("lenient", {"x-guidance": {"lenient": True}, "not": {}})
    assert "the tool 'lenient'" in refusal(lenient)


def test_tools_that_are_too_large_are_refused() -> None:
    many = {f"p{number}": {"type": "string"} for number in range(600)}
    assert "name 600 parameters; at most 500" in refusal(Tool("many", {"properties": many}))
    assert "bytes; at most 65536" in refusal(Tool("long", {"description": "x" * 70_000}))


def test_each_template_teaches_its_format() -> None:
    formats = {
        name: detect_format(text).name for name, text in TEMPLATES.items() if takes_tools(text)
    }
    assert formats == {"llama3": "llama3_json", "qwen": "hermes"}
    assert detect_format("{{ tools }} [TOOL_CALLS] {{ x }}").name == "mistral"
    assert detect_format("{{ tools }} [TOOL_CALLS] {{ x }} [ARGS]").name == "mistral_named"
    assert detect_format("{{ tools }} <tool_call> <function=").name == "qwen3_coder"
    assert detect_format("{{ tools }} <|tool_call|>").name == "granite"
    assert detect_format("{{ tools }}", ("<|tool_call|>",)).name == "granite"
    assert detect_format("{{ tools }}").name == "json"


def test_added_tokens_tell_where_the_template_does_not(tmp_path: Path) -> None:
    added = {"5": {"content": "[TOOL_CALLS]", "special": True}, "6": "odd"}
    config = {"chat_template": "{{ tools }}", "added_tokens_decoder": added}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    template = read_template(tmp_path)
    assert template is not None
    assert (template.tool_format(), template.tool_format("json")) == (
        FORMATS["mistral"],
        FORMATS["json"],
    )


def test_a_template_for_tools_alone_counts(tmp_path: Path) -> None:
    texts = [
        {"name": "default", "template": "{{ messages }}"},
        {"name": "tool_use", "template": "{{ tools }} <tool_call>"},
    ]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": texts[:1]}))
    template = read_template(tmp_path)
    assert template is not None
    assert template.tool_format() is None
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": texts}))
    template = read_template(tmp_path)
    assert template is not None
    assert template.tool_format() is FORMATS["hermes"]


def test_the_format_may_be_named_and_an_unknown_one_is_refused() -> None:
    config = ModelConfig(name="story")
    version = ModelVersion("story", 3, Path("story"), Path("story/3"), config, "")
    config.parameters["tool_format"].string_value = "mistral"
    assert read_settings(version).tool_format == "mistral"
    config.parameters["tool_format"].string_value = "smoke"
    with pytest.raises(LoadFailed, match="tool_format is 'smoke'; it must be one of auto, hermes"):
        read_settings(version)
