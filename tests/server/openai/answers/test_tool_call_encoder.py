"""Calls that a model makes of its own accord: as the whole answer and as the chunks of a stream."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import to_builtins

from backends.llm.tools.formats import HERMES, MISTRAL, ToolFormat
from schedulers.llm.gateway.engine_tokeniser import EngineTokeniser
from schedulers.llm.generation import Finish, GenerationOutput
from server.openai.answers.choice_encoders import ChatChoiceEncoder
from server.openai.answers.completion_choice import CompletionChoice
from server.openai.answers.tool_call_encoder import ToolCallEncoder
from server.openai.bodies.chat import read_chat
from server.openai.bodies.tools import AllowedTools

TOOL = {"type": "function", "function": {"name": "time", "parameters": {"type": "object"}}}
CALL = '<tool_call>\n{"name": "time", "arguments": {"zone": "utc"}}\n</tool_call>'


def calling(**body: Any) -> AllowedTools:
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}], "tools": [TOOL], **body}
    found = read_chat(body).calling
    assert found is not None
    return found


def form(format: ToolFormat = HERMES, **body: Any) -> ToolCallEncoder:
    plain = ChatChoiceEncoder(EngineTokeniser(), None, None)
    return ToolCallEncoder(plain, format, calling(**body), "seed")


def whole(text: str, finish: Finish = Finish.STOP, **body: Any) -> dict[str, Any]:
    answer = CompletionChoice((1,))
    answer.add(GenerationOutput("0", 1, text, finish=finish))
    return to_builtins(form(**body).whole(0, answer))


def streamed(pieces: list[str], finish: Finish = Finish.STOP) -> tuple[list[Any], str | None]:
    """The deltas of one answer, and why it ended."""
    answer, made, choices = CompletionChoice((1,)), form(), list[Any]()
    for at, piece in enumerate(pieces):
        last = at == len(pieces) - 1
        output = GenerationOutput("0", 1, piece, finish=finish if last else None)
        answer.add(output)
        choices += to_builtins(made.pieces(0, answer, output))
    assert [one["finish_reason"] for one in choices[:-1]] == [None] * (len(choices) - 1)
    return [one["delta"] for one in choices], choices[-1]["finish_reason"]


def test_a_call_of_its_own_accord_is_a_call() -> None:
    choice = whole(CALL)
    (call,) = choice["message"]["tool_calls"]
    assert call["function"] == {"name": "time", "arguments": '{"zone": "utc"}'}
    assert call["id"].startswith("call_")
    assert (choice["message"]["content"], choice["finish_reason"]) == (None, "tool_calls")


def test_what_is_said_beside_calls_is_content() -> None:
    message = whole(f"Let me see.\n{CALL}\n{CALL} So.")["message"]
    assert message["content"] == "Let me see. So."
    first, second = message["tool_calls"]
    assert first["function"] == second["function"]
    assert first["id"] != second["id"]


@pytest.mark.parametrize("text", ["", "Hello", CALL.replace("time", "rm"), CALL[:-30], " \n"])
def test_what_is_no_call_is_content_as_it_was(text: str) -> None:
    choice = whole(text)
    assert choice["message"] == {"role": "assistant", "content": text, "refusal": None}
    assert choice["finish_reason"] == "stop"


def test_a_whole_call_before_the_limit_is_told_with_the_limit() -> None:
    choice = whole(f"{CALL}\n<tool_call>", Finish.LENGTH)
    assert len(choice["message"]["tool_calls"]) == 1
    assert choice["finish_reason"] == "length"


def test_a_second_call_is_content_where_one_is_wanted() -> None:
    message = whole(f"{CALL}\n{CALL}", parallel_tool_calls=False)["message"]
    assert (len(message["tool_calls"]), message["content"].strip()) == (1, CALL)


def test_a_stream_names_the_call_first_and_then_its_arguments() -> None:
    deltas, finish = streamed(["So.", "\n", *CALL, ""])
    opening = deltas[1]["tool_calls"][0]
    assert deltas[0] == {"content": "So."}
    assert opening["index"] == 0
    assert opening["type"] == "function"
    assert opening["function"] == {"name": "time", "arguments": ""}
    following = [one["tool_calls"][0] for one in deltas[2:-1]]
    assert {(*one,) for one in following} == {("index", "function")}
    assert "".join(one["function"]["arguments"] for one in following) == '{"zone": "utc"}'
    assert len(following) == len('{"zone": "utc"}')
    assert (deltas[-1], finish) == ({}, "tool_calls")


def test_a_stream_whose_call_breaks_off_says_its_source_in_the_end() -> None:
    broken = '<tool_call>{"name": "time", "arguments": {"zone'
    deltas, finish = streamed([*broken])
    assert "".join(one.get("content", "") for one in deltas) == broken
    assert any("tool_calls" in one for one in deltas)
    assert finish == "stop"


@settings(deadline=None)
@given(
    st.lists(st.sampled_from([CALL, "Hello ", "\n", "<tool_call>", CALL[:-30], "}"]), max_size=5),
    st.integers(1, 9),
)
def test_chunks_put_together_are_the_whole(parts: list[str], size: int) -> None:
    text = "".join(parts)
    pieces = [text[at : at + size] for at in range(0, len(text), size)] or [""]
    deltas, finish = streamed(pieces)
    choice = whole(text)
    calls: dict[int, dict[str, str]] = {}
    for delta in deltas:
        for one in delta.get("tool_calls", ()):
            call = calls.setdefault(one["index"], {"id": one.get("id", ""), "arguments": ""})
            call["arguments"] += one["function"]["arguments"]
    found = choice["message"].get("tool_calls", [])
    ids = {one["id"]: one["function"]["arguments"] for one in found}
    assert ids.items() <= {one["id"]: one["arguments"] for one in calls.values()}.items()
    assert "".join(one.get("content", "") for one in deltas) == (choice["message"]["content"] or "")
    assert finish == choice["finish_reason"]


def test_the_ids_of_mistral_are_nine_letters_and_digits() -> None:
    answer = CompletionChoice((1,))
    answer.add(GenerationOutput("0", 1, f"[TOOL_CALLS][{CALL[11:-12]}]", finish=Finish.STOP))
    (call,) = to_builtins(form(MISTRAL).whole(0, answer))["message"]["tool_calls"]
    assert len(call["id"]) == 9
    assert call["id"].isalnum()
    assert json.loads(call["function"]["arguments"]) == {"zone": "utc"}
