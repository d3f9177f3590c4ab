"""Tools with the stock client: what must be called is called, validly, and its results are read."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import openai
import pytest
from openai import OpenAI
from tokenizers import AddedToken, Tokenizer

from support.chat_templates import QWEN
from support.openai import CONFIG, client, serving, write_language
from support.server import Server

CONTEXT = 4096
PLACES = {"type": "string", "enum": ["Köln", 'the "South"', "São Paulo"]}
WEATHER: dict[str, Any] = {
    "type": "object",
    "properties": {"place": PLACES, "days": {"type": "integer", "minimum": 1, "maximum": 14}},
    "required": ["place", "days"],
    "additionalProperties": False,
}
SCHEMAS = {
    "weather": WEATHER,
    "now": {"type": "object", "properties": {}, "additionalProperties": False},
}
TOOLS: Any = [
    {
        "type": "function",
        "function": {"name": "weather", "description": "Foretells", "parameters": WEATHER},
    },
    {"type": "function", "function": {"name": "now", "parameters": SCHEMAS["now"], "strict": True}},
]
NAMED: Any = {"type": "function", "function": {"name": "weather"}}
HELLO: Any = [{"role": "user", "content": "Weather?"}]
MODELS = ("hermes", "mistral", "plain")
MISTRAL = (
    "{{ bos_token }}{% if tools %}[AVAILABLE_TOOLS]{{ tools | tojson }}[/AVAILABLE_TOOLS]"
    "{% endif %}{% for message in messages %}{% if message.role == 'tool' %}[TOOL_RESULTS]"
    "{{ message.content }}{% elif message.tool_calls %}[TOOL_CALLS]"
    "{% for call in message.tool_calls %}{% if call.id | length != 9 %}"
    "{{ raise_exception('ids have 9 characters') }}{% endif %}{{ call.function | tojson }}"
    "{% endfor %}{% else %}[INST]{{ message.content }}[/INST]{% endif %}{% endfor %}"
)


def write(repository: Path, name: str, template: str, added: list[AddedToken], more: str) -> None:
    config = CONFIG + more
    write_language(
        repository, name, template=template, config=config, max_position_embeddings=CONTEXT
    )
    path = str(repository / name / "1" / "tokenizer.json")
    tokenizer = Tokenizer.from_file(path)
    tokenizer.add_tokens(added)
    tokenizer.save(path)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """`hermes` writes markers as tokens, `mistral` as special ones, `plain` in letters."""
    repository = tmp_path_factory.mktemp("calling")
    plain = [AddedToken(one, normalized=False) for one in ("<tool_call>", "</tool_call>")]
    write(repository, "hermes", QWEN, plain, "")
    write(repository, "mistral", MISTRAL, [AddedToken("[TOOL_CALLS]", special=True)], "")
    named = 'parameters { key: "tool_format" value { string_value: "llama3_json" } }\n'
    write(repository, "plain", QWEN, [], named)
    with serving(repository) as one:
        yield one


@pytest.fixture(scope="module")
def ai(server: Server) -> Iterator[OpenAI]:
    with client(server) as one:
        yield one


def valid(name: str, arguments: str) -> Any:
    read = json.loads(arguments)
    jsonschema_rs.validator_for(SCHEMAS[name]).validate(read)
    return read


def asked(model: str, seed: int, **changes: Any) -> dict[str, Any]:
    usual = {"model": model, "messages": HELLO, "tools": TOOLS, "seed": seed, "max_tokens": 3000}
    return {**usual, "temperature": 1.0, **changes}


@pytest.mark.parametrize("model", MODELS)
def test_a_required_call_is_made_and_valid_whatever_the_seed(ai: OpenAI, model: str) -> None:
    names, ids = set(), []
    for seed in range(6):
        answer = ai.chat.completions.create(**asked(model, seed, tool_choice="required"))
        (choice,) = answer.choices
        assert choice.finish_reason == "tool_calls"
        assert choice.message.content is None
        calls = choice.message.tool_calls
        assert calls
        for call in calls:
            assert call.type == "function"
            valid(call.function.name, call.function.arguments)
            names.add(call.function.name)
            ids.append(call.id)
    assert names == {"weather", "now"}
    assert len(ids) == len(set(ids))
    if model == "mistral":
        assert {(len(id), id.isalnum()) for id in ids} == {(9, True)}


@pytest.mark.parametrize("model", MODELS)
def test_a_named_call_is_one_call_of_that_tool(ai: OpenAI, model: str) -> None:
    for seed in range(4):
        answer = ai.chat.completions.create(**asked(model, seed, tool_choice=NAMED))
        calls = answer.choices[0].message.tool_calls
        assert calls is not None
        assert [call.function.name for call in calls if call.type == "function"] == ["weather"]
        valid("weather", calls[0].function.arguments)


def test_without_parallel_calls_just_one_is_made(ai: OpenAI) -> None:
    for seed in range(6):
        one = asked("hermes", seed, tool_choice="required", parallel_tool_calls=False)
        answer = ai.chat.completions.create(**one)
        assert len(answer.choices[0].message.tool_calls or ()) == 1


@pytest.mark.parametrize("model", MODELS)
def test_a_stream_makes_the_same_calls_in_pieces(ai: OpenAI, model: str) -> None:
    for seed in range(2):
        wanted = asked(model, seed, tool_choice="required", n=2)
        whole = ai.chat.completions.create(**wanted)
        with ai.chat.completions.stream(**wanted) as stream:
            pieces = [event.chunk for event in stream if event.type == "chunk"]
            streamed = stream.get_final_completion()
        for one, other in zip(whole.choices, streamed.choices, strict=True):
            assert [
                (call.function.name, call.function.arguments)
                for call in one.message.tool_calls or ()
                if call.type == "function"
            ] == [
                (call.function.name, call.function.arguments)
                for call in other.message.tool_calls or ()
            ]
            assert other.finish_reason == "tool_calls"
            assert other.message.content is None
        deltas = [
            call
            for piece in pieces
            for choice in piece.choices
            for call in choice.delta.tool_calls or ()
        ]
        opening = [one for one in deltas if one.id]
        assert len(opening) == sum(len(one.message.tool_calls or ()) for one in whole.choices)
        assert {(one.type, one.function and one.function.arguments) for one in opening} == {
            ("function", "")
        }
        assert len(deltas) > 2 * len(opening)


def test_a_call_that_the_limit_cuts_is_text(ai: OpenAI) -> None:
    wanted = asked("hermes", 1, tool_choice=NAMED, max_tokens=60)
    answer = ai.chat.completions.create(**wanted).choices[0]
    assert answer.finish_reason == "length"
    assert answer.message.tool_calls is None
    assert (answer.message.content or "").startswith('<tool_call>\n{"name": "weather", ')


@pytest.mark.parametrize(
    ("model", "marker"), [("hermes", "<tool_call>"), ("mistral", "[TOOL_CALLS]")]
)
def test_markers_that_call_nothing_come_back_as_text(ai: OpenAI, model: str, marker: str) -> None:
    bias = {"261": 100.0}  # the marker's token, and nothing else
    wanted = asked(model, 1, logit_bias=bias, max_tokens=5)
    answer = ai.chat.completions.create(**wanted).choices[0]
    assert (answer.message.content, answer.finish_reason) == (marker * 5, "length")
    assert answer.message.tool_calls is None
    stream = ai.chat.completions.create(**wanted, stream=True)
    assert "".join(one.choices[0].delta.content or "" for one in stream) == marker * 5


def test_tools_that_may_be_called_leave_a_text_as_it_is(ai: OpenAI) -> None:
    greedy = {"temperature": 0.0, "max_tokens": 12}
    free = ai.chat.completions.create(**asked("hermes", 1, **greedy)).choices[0]
    closed = ai.chat.completions.create(**asked("hermes", 1, tool_choice="none", **greedy))
    assert free.message.content == closed.choices[0].message.content
    assert free.message.tool_calls is None
    assert free.finish_reason == "length"


def test_log_probabilities_come_with_calls(ai: OpenAI) -> None:
    wanted = asked("hermes", 1, tool_choice=NAMED, logprobs=True)
    whole = ai.chat.completions.create(**wanted).choices[0]
    assert whole.logprobs is not None
    counted = len(whole.logprobs.content or ())
    stream = ai.chat.completions.create(**wanted, stream=True)
    found = [one.choices[0].logprobs for one in stream]
    assert sum(len(one.content or ()) for one in found if one is not None) == counted > 10


def prompt_of(server: Server, model: str, messages: Any) -> str:
    status, body = server.post("/tokenize", {"model": model, "messages": messages, "tools": TOOLS})
    assert status == 200, body
    asked = {"model": model, "tokens": json.loads(body)["tokens"]}
    prompt: str = json.loads(server.post("/detokenize", asked)[1])["prompt"]
    return prompt


def test_calls_and_their_results_are_read_in_the_next_turn(server: Server, ai: OpenAI) -> None:
    first = ai.chat.completions.create(**asked("hermes", 3, tool_choice=NAMED)).choices[0].message
    assert first.tool_calls is not None
    (call,) = first.tool_calls
    assert call.type == "function"
    messages = [
        *HELLO,
        first.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": call.id, "content": "rain, 7 °C"},
    ]
    prompt = prompt_of(server, "hermes", messages)
    for name in SCHEMAS:
        assert f'"name": "{name}"' in prompt.partition("</tools>")[0]
    arguments = json.dumps(json.loads(call.function.arguments), ensure_ascii=False)
    assert f'<tool_call>\n{{"name": "weather", "arguments": {arguments}}}\n</tool_call>' in prompt
    assert "<tool_response>\nrain, 7 °C\n</tool_response>" in prompt
    as_clients_do = [*HELLO, first, messages[-1]]
    again = ai.chat.completions.create(**asked("hermes", 4, messages=as_clients_do, max_tokens=4))
    assert again.usage is not None
    _, body = server.post("/tokenize", {"model": "hermes", "messages": messages, "tools": TOOLS})
    assert again.usage.prompt_tokens == json.loads(body)["count"]


def test_ids_are_as_the_template_wants_them(server: Server, ai: OpenAI) -> None:
    first = ai.chat.completions.create(**asked("mistral", 3, tool_choice=NAMED)).choices[0].message
    assert first.tool_calls is not None
    called = first.model_dump(exclude_none=True)
    result = {"role": "tool", "tool_call_id": first.tool_calls[0].id, "content": "rain"}
    prompt = prompt_of(server, "mistral", [*HELLO, called, result])
    assert prompt.endswith("[TOOL_RESULTS]rain")
    assert '[TOOL_CALLS]{"name": "weather"' in prompt


def test_templates_are_given_the_tools_in_their_own_form(server: Server) -> None:
    prompt = prompt_of(server, "mistral", HELLO)
    shown = json.loads(prompt.partition("[AVAILABLE_TOOLS]")[2].partition("[/AVAILABLE_TOOLS]")[0])
    weather = {"name": "weather", "description": "Foretells", "parameters": WEATHER}
    now = {"name": "now", "description": "", "parameters": SCHEMAS["now"]}
    assert shown == [
        {"type": "function", "function": weather},
        {"type": "function", "function": now},
    ]


def tool(**changes: Any) -> dict[str, Any]:
    return {"tools": [TOOLS[0], {"type": "function", "function": {"name": "f", **changes}}]}


CALLED: dict[str, Any] = {"id": "c", "type": "function", "function": {"name": "f"}}


def history(**changes: Any) -> dict[str, Any]:
    return {"messages": [*HELLO, {"role": "assistant", "tool_calls": [{**CALLED, **changes}]}]}


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "tools of another kind": ({"tools": "weather"}, "tools"),
    "a tool of another kind": ({"tools": ["weather"]}, "tools[0]"),
    "a tool without a type": ({"tools": [{"function": {"name": "f"}}]}, "tools[0].type"),
    "a custom tool": ({"tools": [{"type": "custom", "custom": {}}]}, "tools[0].type"),
    "a tool without a function": ({"tools": [{"type": "function"}]}, "tools[0].function"),
    "more in a tool": ({"tools": [{**TOOLS[0], "colour": 1}]}, "tools[0].colour"),
    "no name": (tool(name=None), "tools[1].function.name"),
    "a name with a space": (tool(name="a b"), "tools[1].function.name"),
    "a long name": (tool(name="f" * 65), "tools[1].function.name"),
    "a name twice": (tool(name="weather"), "tools[1].function.name"),
    "a description of another kind": (tool(description=3), "tools[1].function.description"),
    "strict of another kind": (tool(strict="yes"), "tools[1].function.strict"),
    "parameters of another kind": (tool(parameters=[]), "tools[1].function.parameters"),
    "parameters of no object": (
        tool(parameters={"type": "array"}),
        "tools[1].function.parameters",
    ),
    "properties of another kind": (
        tool(parameters={"properties": {"a": "string"}}),
        "tools[1].function.parameters",
    ),
    "required of another kind": (
        tool(parameters={"required": "a"}),
        "tools[1].function.parameters",
    ),
    "more in a function": (tool(colour=1), "tools[1].function.colour"),
    "an unknown choice": ({"tool_choice": "any"}, "tool_choice"),
    "a choice of another kind": ({"tool_choice": 3}, "tool_choice"),
    "a choice of another type": ({"tool_choice": {"type": "allowed_tools"}}, "tool_choice.type"),
    "a choice without a function": ({"tool_choice": {"type": "function"}}, "tool_choice.function"),
    "a choice of no tool": (
        {"tool_choice": {"type": "function", "function": {"name": "f"}}},
        "tool_choice.function.name",
    ),
    "a choice without tools": ({"tools": [], "tool_choice": "required"}, "tool_choice"),
    "a name without tools": ({"tools": None, "tool_choice": NAMED}, "tool_choice"),
    "parallel calls of another kind": ({"parallel_tool_calls": "yes"}, "parallel_tool_calls"),
    "a grammar beside it": ({"response_format": {"type": "json_object"}}, "response_format"),
    "a regex beside it": ({"guided_regex": "a+", "tool_choice": "required"}, "guided_regex"),
    "parameters that cannot be followed": (
        {**tool(parameters={"properties": {"a": {"type": "strin"}}}), "tool_choice": "required"},
        "tools",
    ),
    "a result without an id": (
        {"messages": [*HELLO, {"role": "tool", "content": "x"}]},
        "messages[1].tool_call_id",
    ),
    "a call without a function": (history(function=None), "messages[1].tool_calls[0].function"),
    "a call without a name": (
        history(function={"arguments": "{}"}),
        "messages[1].tool_calls[0].function.name",
    ),
    "a call of another type": (history(type="custom"), "messages[1].tool_calls[0].type"),
    "arguments that are no JSON": (
        history(function={"name": "f", "arguments": "{"}),
        "messages[1].tool_calls[0].function.arguments",
    ),
    "arguments that are no object": (
        history(function={"name": "f", "arguments": "[]"}),
        "messages[1].tool_calls[0].function.arguments",
    ),
}


@pytest.mark.parametrize(("changes", "param"), BAD.values(), ids=BAD)
def test_a_bad_field_is_named(server: Server, changes: dict[str, Any], param: str) -> None:
    body = {"model": "hermes", "messages": HELLO, "tools": TOOLS, "max_tokens": 4, **changes}
    for stream in (False, True):
        status, answer = server.post("/v1/chat/completions", {**body, "stream": stream})
        error = json.loads(answer)["error"]
        assert (status, error["type"], error["param"]) == (400, "invalid_request_error", param)


def test_parameters_that_cannot_be_followed_name_their_tool(ai: OpenAI) -> None:
    broken = tool(parameters={"properties": {"a": {"type": "strin"}}})
    with pytest.raises(openai.BadRequestError, match="the tool 'f' cannot be followed") as caught:
        ai.chat.completions.create(**asked("hermes", 1, tool_choice="required", **broken))
    assert caught.value.code == "invalid_grammar"
