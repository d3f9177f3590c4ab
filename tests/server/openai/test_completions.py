"""Text completions with the stock client: prompts of every kind, echo, log-probabilities."""

import json
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI

from support.openai import greedy, tokens_of, write_language
from support.server import Server

PROMPT = "Once upon a time"
GREEDY: dict[str, Any] = {"model": "talker", "temperature": 0, "max_tokens": 8}


def said(ai: OpenAI, prompt: Any, **changes: Any) -> str:
    return ai.completions.create(**{**GREEDY, "prompt": prompt, **changes}).choices[0].text


def test_greedy_text_is_what_transformers_says(ai: OpenAI, tmp_path: Path) -> None:
    model = write_language(tmp_path)
    answer = ai.completions.create(**GREEDY, prompt=PROMPT, logprobs=0)
    expected = greedy(model, tokens_of(PROMPT), 8)
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.tokens is not None
    assert [len(logprobs.tokens), answer.object] == [8, "text_completion"]
    again = ai.completions.create(
        **{**GREEDY, "max_tokens": 1}, prompt=tokens_of(PROMPT) + expected
    )
    asked = greedy(model, tokens_of(PROMPT) + expected, 1)
    assert again.choices[0].text == ai_text(ai, asked)
    assert answer.choices[0].text == ai_text(ai, expected)


def ai_text(ai: OpenAI, tokens: list[int]) -> str:
    """What tokens read as, by the server's own words; without special ones."""
    answer = ai.post(
        "/detokenize", body={"model": "talker", "tokens": tokens}, cast_to=dict[str, Any]
    )
    text: str = answer["prompt"]
    return text


def test_text_and_its_tokens_are_the_same_prompt(ai: OpenAI) -> None:
    assert said(ai, PROMPT) == said(ai, tokens_of(PROMPT)) == said(ai, [tokens_of(PROMPT)])
    bare = tokens_of(PROMPT, special=False)
    assert said(ai, PROMPT, extra_body={"add_special_tokens": False}) == said(ai, bare)


def test_several_prompts_have_several_answers(ai: OpenAI) -> None:
    prompts = [PROMPT, "Hello", "The end"]
    answer = ai.completions.create(**GREEDY, prompt=prompts, n=2, seed=1)
    assert [one.index for one in answer.choices] == [0, 1, 2, 3, 4, 5]
    alone = [said(ai, prompt) for prompt in prompts for _ in range(2)]
    assert [one.text for one in answer.choices] == alone
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == sum(len(tokens_of(prompt)) for prompt in prompts)
    assert answer.usage.completion_tokens == 48
    lists = [tokens_of(prompt) for prompt in prompts]
    of_tokens = ai.completions.create(**GREEDY, prompt=lists).choices
    assert [one.text for one in of_tokens] == alone[::2]


def test_a_stream_of_several_prompts_says_the_same(ai: OpenAI) -> None:
    prompts = [PROMPT, "Hello"]
    whole = ai.completions.create(**GREEDY, prompt=prompts)
    found = ["", ""]
    for chunk in ai.completions.create(**GREEDY, prompt=prompts, stream=True):
        found[chunk.choices[0].index] += chunk.choices[0].text
    assert found == [one.text for one in whole.choices]


def test_the_limit_is_sixteen_where_none_is_given(ai: OpenAI) -> None:
    answer = ai.completions.create(model="talker", prompt=PROMPT, temperature=0)
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 16


def test_echo_repeats_the_prompt(ai: OpenAI) -> None:
    assert said(ai, PROMPT, echo=True) == PROMPT + said(ai, PROMPT)
    assert said(ai, tokens_of(PROMPT), echo=True) == PROMPT + said(ai, PROMPT)
    chunks = list(ai.completions.create(**GREEDY, prompt=PROMPT, echo=True, stream=True))
    assert chunks[0].choices[0].text == PROMPT
    assert "".join(one.choices[0].text for one in chunks) == PROMPT + said(ai, PROMPT)


@pytest.mark.parametrize("stream", [False, True])
def test_echo_with_logprobs_scores_the_prompt_as_well(ai: OpenAI, stream: bool) -> None:
    answer = ai.completions.create(**GREEDY, prompt=PROMPT, echo=True, logprobs=2, stream=stream)
    pieces = [one.choices[0].logprobs for one in (answer if stream else [answer])]  # type: ignore[union-attr]
    found = [one for one in pieces if one is not None]
    tokens = [token for one in found for token in one.tokens or []]
    logprobs = [value for one in found for value in one.token_logprobs or []]
    offsets = [offset for one in found for offset in one.text_offset or []]
    rivals = [row for one in found for row in one.top_logprobs or []]
    assert tokens[: len(PROMPT) + 1] == ["<s>", *PROMPT]
    assert logprobs[0] is None
    assert all(value <= 0 for value in logprobs[1:])
    assert len(tokens) == len(logprobs) == len(rivals) == len(PROMPT) + 9
    lengths = [len(token) for token in tokens]
    assert offsets == [sum(lengths[:at]) for at in range(len(lengths))]
    assert rivals[0] is None
    assert all(row is not None and tokens[at + 1] in row for at, row in enumerate(rivals[1:]))


def test_a_prompt_alone_is_scored_without_an_answer(ai: OpenAI) -> None:
    answer = ai.completions.create(
        model="talker", prompt=PROMPT, max_tokens=0, echo=True, logprobs=1
    )
    choice = answer.choices[0]
    assert (choice.text, choice.finish_reason) == (PROMPT, "length")
    assert choice.logprobs is not None
    assert choice.logprobs.tokens == ["<s>", *PROMPT]
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 0


def test_prompt_logprobs_are_by_token_with_ranks(ai: OpenAI) -> None:
    answer = ai.completions.create(**GREEDY, prompt="Hi", extra_body={"prompt_logprobs": 1})
    first, second, third = getattr(answer.choices[0], "prompt_logprobs")  # noqa: B009
    assert first is None
    for token, letter, row in zip(tokens_of("Hi")[1:], "Hi", (second, third), strict=True):
        assert row[str(token)]["decoded_token"] == letter
        assert row[str(token)]["rank"] >= 1
        assert min(one["rank"] for one in row.values()) == 1


def test_logprobs_of_the_answer_start_at_its_own_beginning(ai: OpenAI) -> None:
    logprobs = ai.completions.create(**GREEDY, prompt=PROMPT, logprobs=0).choices[0].logprobs
    assert logprobs is not None
    assert logprobs.text_offset is not None
    assert logprobs.text_offset[0] == 0
    assert [len(row) for row in logprobs.top_logprobs or []] == [1] * 8


def test_best_of_as_many_as_are_given_is_no_choice(ai: OpenAI) -> None:
    assert said(ai, PROMPT, best_of=1, suffix="") == said(ai, PROMPT)


# tokens


def test_tokenize_says_what_a_prompt_is_made_of(server: Server) -> None:
    asked = {"model": "talker", "prompt": "Füchse", "return_token_strs": True}
    status, body = server.post("/tokenize", asked)
    found = json.loads(body)
    assert status == 200
    assert found["tokens"] == tokens_of("Füchse")
    assert (found["count"], found["max_model_len"]) == (8, 256)
    assert found["token_strs"][:2] == ["<s>", "F"]
    _, bare = server.post("/v1/tokenize", {**asked, "add_special_tokens": False})
    assert json.loads(bare)["tokens"] == tokens_of("Füchse", special=False)


def test_detokenize_gives_the_text_back_special_tokens_included(server: Server) -> None:
    asked = {"model": "talker", "tokens": tokens_of("Füchse 🦊")}
    for path in ("/detokenize", "/v1/detokenize"):
        assert json.loads(server.post(path, asked)[1]) == {"prompt": "<s>Füchse 🦊"}
    assert json.loads(server.post("/detokenize", {**asked, "tokens": []})[1]) == {"prompt": ""}


# shapes


def test_an_answer_follows_a_choice_a_regex_a_schema(ai: OpenAI) -> None:
    asked = {**GREEDY, "temperature": 1.0, "max_tokens": 100}
    choice = {"guided_choice": ["red", "green", "blue"]}
    assert said(ai, PROMPT, **asked, extra_body=choice) in ("red", "green", "blue")
    regex = {"structured_outputs": {"regex": "[ab]{3,6}"}}
    found = said(ai, PROMPT, **asked, extra_body=regex)
    assert set(found) <= {"a", "b"}
    assert 3 <= len(found) <= 6
    schema = {
        "type": "object",
        "properties": {"sure": {"type": "boolean"}, "kind": {"enum": ["a", "b"]}},
        "required": ["sure", "kind"],
        "additionalProperties": False,
    }
    answer = ai.chat.completions.create(
        model="talker",
        messages=[{"role": "user", "content": "x"}],
        response_format={"type": "json_schema", "json_schema": {"name": "s", "schema": schema}},
        max_tokens=120,
    )
    assert answer.choices[0].finish_reason == "stop"
    document = json.loads(answer.choices[0].message.content or "")
    assert set(document) == {"sure", "kind"}


def test_a_schema_that_makes_no_sense_names_its_field(server: Server) -> None:
    body = {**GREEDY, "prompt": "x", "guided_regex": "(["}
    status, answer = server.post("/v1/completions", body)
    error = json.loads(answer)["error"]
    assert (status, error["param"], error["code"]) == (400, "guided_regex", "invalid_grammar")
    assert error["message"]
    status, answer = server.post("/v1/completions", {**body, "stream": True})
    assert status == 400
