"""A body is read as leniently as the vendor's, and refused in our words."""

from typing import Any

import pytest

from server.openai.bodies.chat import read_chat
from server.openai.bodies.completions import read_completion
from server.openai.bodies.embeddings import read_embedding
from server.openai.tokens import read_detokenize
from server.rest.openai_errors import BadField

CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"const": None}}}


def test_null_counts_as_absent_wherever_it_stands() -> None:
    message = {"role": "user", "content": "x", "name": None, "nobody": None}
    options = {"temperature": None, "stop": None, "stream_options": None, "nobody": None}
    assert read_chat({**CHAT, "messages": [message], **options}) == read_chat(CHAT)


def test_null_inside_what_is_passed_on_stays() -> None:
    asked = read_chat({**CHAT, "tools": [TOOL], "chat_template_kwargs": {"a": None}, "x": None})
    assert asked.calling is not None
    assert asked.calling.tools == {"f": {"const": None}}
    assert asked.chat.variables == {"a": None}


def test_a_float_without_a_fraction_is_a_whole_number_but_not_a_token_of_a_prompt() -> None:
    assert read_chat({**CHAT, "n": 2.0}).options.count == 2
    assert read_detokenize({"model": "m", "tokens": [1, 2.0]}) == (1, 2)
    with pytest.raises(BadField, match="part of a string, a list of strings") as caught:
        read_completion({"model": "m", "prompt": [1.0]})
    assert caught.value.param == "prompt[0]"


def test_a_whole_number_is_a_number() -> None:
    assert read_chat({**CHAT, "temperature": 1}).options.sampling.temperature == 1.0


@pytest.mark.parametrize(
    ("changes", "param", "text"),
    [
        ({"n": True}, "n", "n is True; it must be a whole number from 1 to 128"),
        ({"n": 129.0}, "n", "n is 129; it must be a whole number from 1 to 128"),
        ({"top_p": 2}, "top_p", "top_p is 2; it must be a number from 0 to 1"),
        ({"top_p": float("nan")}, "top_p", "top_p is nan; it must be a number from 0 to 1"),
        ({"stream": 1}, "stream", "stream is 1; it must be true or false"),
        (
            {"stop": ["a", 1]},
            "stop",
            "stop is ['a', 1]; it must be a string, or a list of at most 32, each of 1 to 1024 "
            "characters",
        ),
        (
            {"messages": [{"role": "alien"}]},
            "messages[0].role",
            "messages[0].role is 'alien'; it must be one of 'system', 'developer', 'user', "
            "'assistant', 'tool'",
        ),
        (
            {"messages": [{"role": "user", "content": None}]},
            "messages[0].content",
            "you must provide messages[0].content",
        ),
        (
            {"messages": [{"role": "user", "content": "x", "`$.n`": 1}]},
            "messages[0].`$.n`",
            "Unrecognized request argument supplied: messages[0].`$.n`",
        ),
        (
            {"tools": [{"type": "function"}]},
            "tools[0].function",
            "tools[0].function is None; it must be an object with a name",
        ),
        (
            {"tools": [{"type": "code", "function": {}}]},
            "tools[0].type",
            "tools[0].type is 'code'; only 'function' is offered",
        ),
        (
            {"tools": [{"type": "function", "function": {"name": "f\n"}}]},
            "tools[0].function.name",
            "tools[0].function.name is 'f\\n'; it must be 1 to 64 letters, digits, '_' or '-'",
        ),
        ({"store": True}, "store", "store is not supported by this server; leave it out"),
        (
            {"modalities": ["audio"]},
            "modalities",
            "modalities is not supported by this server; leave it out",
        ),
        (
            {"stream": True, "stream_options": {"include_obfuscation": True}},
            "stream_options.include_obfuscation",
            "stream_options.include_obfuscation is not supported by this server; leave it out",
        ),
        (
            {"logit_bias": {"7": "x"}},
            "logit_bias.7",
            "logit_bias.7 is 'x'; it must be a number from -100 to 100",
        ),
    ],
)
def test_what_is_wrong_is_said_in_our_words(changes: dict[str, Any], param: str, text: str) -> None:
    with pytest.raises(BadField) as caught:
        read_chat({**CHAT, **changes})
    assert (caught.value.param, str(caught.value)) == (param, text)


def test_a_field_that_is_not_offered_says_so_by_its_code() -> None:
    with pytest.raises(BadField) as caught:
        read_embedding({"model": "m", "input": "x", "dimensions": 3})
    assert (caught.value.param, caught.value.code) == ("dimensions", "unsupported")
