"""What is refused over the OpenAI listener: the status, the envelope, the field that is named."""

import http.client
import json
import re
import time
from contextlib import closing
from typing import Any

import openai
import pytest
from openai import OpenAI

from support.openai import client
from support.server import Server

HELLO = [{"role": "user", "content": "Hello"}]
CHAT: dict[str, Any] = {"model": "talker", "messages": HELLO, "max_tokens": 4}
TEXT: dict[str, Any] = {"model": "talker", "prompt": "Hello", "max_tokens": 4}


def refused(server: Server, path: str, body: Any) -> tuple[int, dict[str, Any]]:
    """Status and error of a request that is refused; its envelope is OpenAI's."""
    status, answer = server.post(path, body)
    document = json.loads(answer)
    assert document.keys() == {"error"}, document
    error: dict[str, Any] = document["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert error["message"]
    return status, error


def message(**changes: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "x", **changes}]}


IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {}}}

BAD_CHATS: dict[str, tuple[dict[str, Any], str]] = {
    "no messages": ({"messages": None}, "messages"),
    "empty messages": ({"messages": []}, "messages"),
    "text for messages": ({"messages": "hello"}, "messages"),
    "a message that is none": ({"messages": ["hello"]}, "messages[0]"),
    "unknown role": (message(role="alien"), "messages[0].role"),
    "role of another kind": (message(role=["user"]), "messages[0].role"),
    "no content": (message(content=None), "messages[0].content"),
    "content of another kind": (message(content=3), "messages[0].content"),
    "image": (
        message(content=[{"type": "text", "text": "x"}, IMAGE]),
        "messages[0].content[1].type",
    ),
    "audio part": (message(content=[{"type": "input_audio"}]), "messages[0].content[0].type"),
    "part without text": (message(content=[{"type": "text"}]), "messages[0].content[0].text"),
    "unknown field of a message": (message(colour="red"), "messages[0].colour"),
    "tools": ({"tools": [TOOL]}, "tools"),
    "tool choice": ({"tool_choice": "required"}, "tool_choice"),
    "functions": ({"functions": [{"name": "f"}]}, "functions"),
    "audio": ({"audio": {"voice": "x", "format": "wav"}}, "audio"),
    "modalities": ({"modalities": ["text", "audio"]}, "modalities"),
    "prediction": ({"prediction": {"type": "content", "content": "x"}}, "prediction"),
    "web search": ({"web_search_options": {}}, "web_search_options"),
    "reasoning effort": ({"reasoning_effort": "high"}, "reasoning_effort"),
    "template": ({"chat_template": "{{ x }}"}, "chat_template"),
    "top logprobs alone": ({"top_logprobs": 2}, "top_logprobs"),
    "too many top logprobs": ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    "logprobs as a number": ({"logprobs": 2}, "logprobs"),
    "two limits": ({"max_completion_tokens": 5}, "max_tokens"),
    "no limit at all": ({"max_tokens": 0}, "max_tokens"),
    "store": ({"store": True}, "store"),
    "service tier": ({"service_tier": "flex"}, "service_tier"),
    "continued and opened": (
        {"continue_final_message": True, "add_generation_prompt": True},
        "continue_final_message",
    ),
    "unknown format": ({"response_format": {"type": "xml"}}, "response_format.type"),
    "schema missing": ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
    "schema of another kind": (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": 3}}},
        "response_format.json_schema.schema",
    ),
    "two grammars": (
        {"response_format": {"type": "json_object"}, "guided_regex": "a"},
        "guided_regex",
    ),
    "guided choice of nothing": ({"guided_choice": []}, "guided_choice"),
    "structured field": ({"structured_outputs": {"xml": 1}}, "structured_outputs.xml"),
    "template that fails": (message(content="fail"), "messages"),
}

BAD_OPTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "temperature": ({"temperature": -1}, "temperature"),
    "temperature as text": ({"temperature": "hot"}, "temperature"),
    "temperature as a flag": ({"temperature": True}, "temperature"),
    "top_p": ({"top_p": 1.5}, "top_p"),
    "top_p zero": ({"top_p": 0}, "top_p"),
    "top_k": ({"top_k": -2}, "top_k"),
    "min_p": ({"min_p": 2}, "min_p"),
    "presence penalty": ({"presence_penalty": 1000}, "presence_penalty"),
    "frequency penalty": ({"frequency_penalty": "x"}, "frequency_penalty"),
    "repetition penalty": ({"repetition_penalty": 0}, "repetition_penalty"),
    "bias of a word": ({"logit_bias": {"hello": 1}}, "logit_bias"),
    "bias beyond bounds": ({"logit_bias": {"5": 101}}, "logit_bias.5"),
    "bias of an unknown token": ({"logit_bias": {"5000": 1}}, "logit_bias"),
    "n": ({"n": 0}, "n"),
    "n of many": ({"n": 129}, "n"),
    "negative limit": ({"max_tokens": -1}, "max_tokens"),
    "limit as a fraction": ({"max_tokens": 1.5}, "max_tokens"),
    "minimum beyond the limit": ({"min_tokens": 5}, "min_tokens"),
    "stop": ({"stop": 3}, "stop"),
    "empty stop": ({"stop": ["a", ""]}, "stop"),
    "many stops": ({"stop": ["a"] * 33}, "stop"),
    "stop tokens": ({"stop_token_ids": ["a"]}, "stop_token_ids[0]"),
    "unknown stop token": ({"stop_token_ids": [100000]}, "stop_token_ids"),
    "seed": ({"seed": 1 << 63}, "seed"),
    "seed as text": ({"seed": "x"}, "seed"),
    "stream": ({"stream": "yes"}, "stream"),
    "stream options without a stream": (
        {"stream_options": {"include_usage": True}},
        "stream_options",
    ),
    "unknown stream option": (
        {"stream": True, "stream_options": {"speed": 1}},
        "stream_options.speed",
    ),
    "prompt logprobs of a stream": ({"stream": True, "prompt_logprobs": 1}, "prompt_logprobs"),
    "beam search": ({"use_beam_search": True}, "use_beam_search"),
    "priority": ({"priority": "high"}, "priority"),
    "unknown field": ({"frobnicate": 1}, "frobnicate"),
    "too long an answer": ({"max_tokens": 300}, None),
}

BAD_TEXTS: dict[str, tuple[dict[str, Any], str]] = {
    "no prompt": ({"prompt": None}, "prompt"),
    "empty list": ({"prompt": []}, "prompt"),
    "mixed list": ({"prompt": ["a", 3]}, "prompt[1]"),
    "empty tokens": ({"prompt": [[]]}, "prompt[0]"),
    "negative token": ({"prompt": [[1, -1]]}, "prompt[0]"),
    "unknown token": ({"prompt": [1, 264]}, "prompt"),
    "prompt as an object": ({"prompt": {"text": "x"}}, "prompt"),
    "suffix": ({"suffix": "the end"}, "suffix"),
    "best of more": ({"best_of": 3}, "best_of"),
    "nothing to say": ({"max_tokens": 0}, "max_tokens"),
    "logprobs": ({"logprobs": 21}, "logprobs"),
    "logprobs as a flag": ({"logprobs": True}, "logprobs"),
    "many answers": ({"prompt": ["a"] * 65, "n": 2}, "n"),
    "too long a prompt": ({"prompt": "x" * 300}, "prompt"),
    "far too long a prompt": ({"prompt": "x" * 20_000}, "prompt"),
    "messages": ({"messages": HELLO}, "messages"),
}


@pytest.mark.parametrize(("changes", "param"), BAD_CHATS.values(), ids=BAD_CHATS)
def test_a_bad_chat_names_its_field(server: Server, changes: dict[str, Any], param: str) -> None:
    status, error = refused(server, "/v1/chat/completions", {**CHAT, **changes})
    assert (status, error["type"], error["param"]) == (400, "invalid_request_error", param)


@pytest.mark.parametrize(("changes", "param"), BAD_OPTIONS.values(), ids=BAD_OPTIONS)
def test_a_bad_option_names_its_field_at_both_paths(
    server: Server, changes: dict[str, Any], param: str | None
) -> None:
    for path, body, prompt in (
        ("/v1/chat/completions", CHAT, "messages"),
        ("/v1/completions", TEXT, "prompt"),
    ):
        status, error = refused(server, path, {**body, **changes})
        assert (status, error["param"]) == (400, param or prompt), error


@pytest.mark.parametrize(("changes", "param"), BAD_TEXTS.values(), ids=BAD_TEXTS)
def test_a_bad_completion_names_its_field(
    server: Server, changes: dict[str, Any], param: str
) -> None:
    status, error = refused(server, "/v1/completions", {**TEXT, **changes})
    assert (status, error["param"]) == (400, param), error


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {"model": "talker"}, "prompt"),
        ("/tokenize", {"model": "talker", "prompt": 3}, "prompt"),
        ("/detokenize", {"model": "talker", "tokens": "x"}, "tokens"),
        ("/detokenize", {"model": "talker", "tokens": [1, 9999]}, "tokens"),
        ("/v1/embeddings", {"model": "talker", "input": "x"}, "model"),
        ("/v1/embeddings", {"model": "talker", "input": []}, "input"),
        ("/v1/embeddings", {"model": "talker", "input": "x", "dimensions": 3}, "dimensions"),
        ("/v1/chat/completions", {"messages": HELLO}, "model"),
        ("/v1/chat/completions", {"model": 3, "messages": HELLO}, "model"),
        ("/v1/chat/completions", {"model": "echo", "messages": HELLO}, "model"),
        ("/v1/chat/completions", {"model": "narrow", "messages": HELLO}, "messages"),
    ],
)
def test_what_cannot_be_done_names_its_field(
    server: Server, path: str, body: Any, param: str
) -> None:
    status, error = refused(server, path, body)
    assert (status, error["param"]) == (400, param)


def test_an_unknown_model_is_not_found(server: Server, ai: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        ai.chat.completions.create(model="nobody", messages=[])
    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")
    assert caught.value.type == "invalid_request_error"
    with pytest.raises(openai.NotFoundError):
        ai.models.retrieve("nobody")
    with pytest.raises(openai.NotFoundError):
        ai.models.retrieve("echo")


def test_a_prompt_beyond_the_context_says_so_in_openais_words(ai: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="maximum context length is 256") as caught:
        ai.completions.create(model="talker", prompt="x" * 300, max_tokens=4)
    assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "prompt")


def test_a_template_that_fails_says_what_it_says(ai: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="no such talk") as caught:
        ai.chat.completions.create(model="talker", messages=[{"role": "user", "content": "fail"}])
    assert caught.value.code == "chat_template_failed"


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"x"', b'{"model": "talker"', b"\xff"])
def test_a_body_that_is_no_object_is_refused(server: Server, body: bytes) -> None:
    for path in ("/v1/chat/completions", "/v1/completions", "/tokenize"):
        status, answer = server.call("POST", path, body)
        assert status == 400
        assert json.loads(answer)["error"]["type"] == "invalid_request_error"


def test_paths_and_verbs_that_are_nobodys_have_the_envelope(server: Server) -> None:
    status, answer = server.get("/v1/nothing")
    assert (status, json.loads(answer)["error"]["code"]) == (404, "unknown_url")
    status, answer = server.get("/v1/chat/completions")
    assert (status, json.loads(answer)["error"]["type"]) == (405, "invalid_request_error")
    assert json.loads(server.get("/v2/nothing")[1]) == {"error": "Not Found"}


def test_the_errors_of_a_stream_come_with_their_status(ai: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        ai.completions.create(model="talker", prompt="x" * 300, stream=True)
    assert caught.value.code == "context_length_exceeded"


def send(server: Server, body: dict[str, Any], **headers: str) -> http.client.HTTPConnection:
    """A request whose answer has not been read."""
    connection = http.client.HTTPConnection(server.http, timeout=60)
    connection.request("POST", "/v1/completions", json.dumps(body), headers)
    return connection


LONG = {"model": "narrow", "prompt": "x", "max_tokens": 4000, "ignore_eos": True, "stream": True}


def test_a_full_queue_is_429_with_when_to_come_back(server: Server) -> None:
    with closing(send(server, LONG)) as running:
        running.getresponse().read(1)
        with closing(send(server, LONG)):
            server.wait_for(lambda: overloaded(server), "a full queue")
            with client(server) as ai, pytest.raises(openai.RateLimitError) as caught:
                ai.completions.create(model="narrow", prompt="x")
    assert caught.value.code == "overloaded"
    assert int(caught.value.response.headers["Retry-After"]) >= 1
    server.wait_for(lambda: not overloaded(server), "the queue to empty")


def overloaded(server: Server) -> bool:
    body = {"model": "narrow", "prompt": "x", "max_tokens": 1}
    return server.post("/v1/completions", body)[0] == 429


def test_a_deadline_ends_an_answer_with_an_error(server: Server) -> None:
    body = {**LONG, "stream": False}
    with closing(send(server, body, **{"grpc-timeout": "300m"})) as connection:
        response = connection.getresponse()
        assert response.status == 503
        assert json.loads(response.read())["error"]["code"] == "deadline_exceeded"


def test_an_error_in_mid_stream_is_an_event_and_the_end(server: Server) -> None:
    with closing(send(server, LONG, **{"grpc-timeout": "1S"})) as connection:
        response = connection.getresponse()
        events = response.read().decode().split("\n\n")
    if response.status == 503:
        return  # a machine so busy that no token came within the second
    assert response.status == 200
    assert events[-2:] == ["data: [DONE]", ""]
    error = json.loads(events[-3].removeprefix("data: "))["error"]
    assert (error["type"], error["code"]) == ("server_error", "deadline_exceeded")


def test_a_client_that_hangs_up_frees_the_model_at_once(server: Server) -> None:
    began = time.monotonic()
    for stream in (True, False):
        with closing(send(server, {**LONG, "stream": stream})) as connection:
            if stream:
                connection.getresponse().read(1)
        server.wait_for(lambda: running_answers(server) == 0, "its blocks to be free")
    assert time.monotonic() - began < 60


def running_answers(server: Server) -> float:
    _, text = server.get("/metrics", server.metrics_port)
    rows = [line for line in text.decode().splitlines() if 'model="narrow"' in line]
    found = [line for line in rows if "running" in line or "waiting" in line]
    assert found, text.decode()
    return sum(float(line.rpartition(" ")[2]) for line in found)


def test_every_answer_has_an_id_the_clients_own_if_it_has_one(server: Server) -> None:
    for given, expected in (("mine-1", "mine-1"), ("", None), ("spaces are none", None)):
        headers = {"X-Request-Id": given} if given else {}
        for body in (TEXT, {**TEXT, "n": 0}, {**TEXT, "stream": True}):
            with closing(send(server, body, **headers)) as connection:
                response = connection.getresponse()
                response.read()
            found = response.headers["x-request-id"]
            ours = re.fullmatch(r"[0-9a-f]{12}-[0-9a-f]+", found) is not None
            assert found == expected or (expected is None and ours)


def test_the_access_log_tells_of_model_and_request(
    server: Server, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with closing(send(server, TEXT, **{"X-Request-Id": "told-of"})) as connection:
        connection.getresponse().read()
    path = next(tmp_path_factory.getbasetemp().glob("access.log"))
    server.wait_for(lambda: '"told-of"' in path.read_text(), "the line")
    line = next(row for row in path.read_text().splitlines() if '"told-of"' in row)
    entry = json.loads(line)
    assert (entry["path"], entry["model"], entry["status"]) == ("/v1/completions", "talker", 200)


@pytest.mark.parametrize("stream", [False, True])
def test_the_access_log_tells_of_a_client_that_went_before_the_end(
    server: Server, tmp_path_factory: pytest.TempPathFactory, stream: bool
) -> None:
    long = {**TEXT, "model": "narrow", "max_tokens": 3000, "ignore_eos": True, "stream": stream}
    name = f"gone-{stream}"
    with closing(send(server, long, **{"X-Request-Id": name})) as connection:
        if stream:
            connection.getresponse().readline()
    path = next(tmp_path_factory.getbasetemp().glob("access.log"))
    server.wait_for(lambda: f'"{name}"' in path.read_text(), "the line")
    line = next(row for row in path.read_text().splitlines() if f'"{name}"' in row)
    assert json.loads(line)["status"] == 499
