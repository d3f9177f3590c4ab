"""Talking to a language model: what was said is kept, and what cannot be sent is refused."""

import json

import pytest

from admin_ui.pages.chat import MOST_MESSAGES, answer_message, history, request_of
from admin_ui.pages.snippets import talk
from admin_ui.services import ControlApiError, GatewayResponse

FORM = {"message": " Hello ", "temperature": "0.5", "max_tokens": "20"}


def test_the_new_message_follows_what_was_said_before() -> None:
    before = [{"role": "system", "content": "old"}, {"role": "assistant", "content": "Hi"}]
    said = history({**FORM, "history": json.dumps(before), "system": "Be brief"})
    assert said == [
        {"role": "system", "content": "Be brief"},
        {"role": "assistant", "content": "Hi"},
        {"role": "user", "content": "Hello"},
    ]


def test_a_long_conversation_is_sent_with_its_last_messages() -> None:
    before = [{"role": "user", "content": str(number)} for number in range(200)]
    said = history({**FORM, "history": json.dumps(before)})
    assert len(said) == MOST_MESSAGES + 1
    assert said[-2]["content"] == "199"


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"message": "  "}, "message"),
        ({"history": "{"}, "message"),
        ({"history": '[{"role": "user"}]'}, "message"),
        ({"history": '"text"'}, "message"),
        ({"temperature": "warm"}, "temperature"),
        ({"temperature": "nan"}, "temperature"),
        ({"temperature": "3"}, "temperature"),
        ({"max_tokens": "0"}, "max_tokens"),
    ],
)
def test_what_cannot_be_sent_is_refused_at_its_field(changed: dict[str, str], field: str) -> None:
    form = {**FORM, **changed}
    with pytest.raises(ControlApiError) as caught:
        request_of("tiny", history(form), form)
    assert (caught.value.status, caught.value.field) == (422, field)


def test_the_gateways_reason_is_told_beside_the_message() -> None:
    full = {"error": {"message": "the prompt is too long", "code": "context_length_exceeded"}}
    with pytest.raises(ControlApiError, match="the prompt is too long"):
        answer_message(GatewayResponse(400, {}, json.dumps(full).encode(), 0.1))
    with pytest.raises(ControlApiError, match="HTTP 502"):
        answer_message(GatewayResponse(502, {}, b"<html>", 0.1))
    answer = {"choices": [{"message": {"role": "assistant", "content": "Hi"}}]}
    assert (
        answer_message(GatewayResponse(200, {}, json.dumps(answer).encode(), 0.1))["content"]
        == "Hi"
    )


def test_the_same_from_programs_is_a_program() -> None:
    same = talk("http://127.0.0.1:8000", "it's")
    compile(same["client"], "client", "exec")
    assert same["curl"].startswith("curl -sN http://127.0.0.1:8000/v1/chat/completions")
