"""A response has a bounded number of log-probabilities, which the gateway keeps until its end."""

from typing import Any

import pytest
from openai import BadRequestError, OpenAI

from backends.llm.sampling.token_logprobs import TokenLogprobs
from schedulers.llm.generation import GenerationOutput
from server.openai.answers.completion_choice import CompletionChoice
from server.openai.answers.score_limit import MOST_SCORES, LogprobLimit
from server.openai.bodies.completions import read_completion
from server.rest.openai_errors import BadField

SCORED = TokenLogprobs(-1.0, 0, ((1, -1.0),))


def limit(**asked: Any) -> LogprobLimit:
    completion = read_completion({"model": "m", "prompt": [1] * 100, **asked})
    return LogprobLimit([(1,) * 100], completion.options, completion.options.prompt_logprobs)


def test_too_many_log_probabilities_are_refused_and_n_is_named(ai: OpenAI) -> None:
    with pytest.raises(BadRequestError) as caught:
        ai.completions.create(model="narrow", prompt="x", n=128, max_tokens=3000, logprobs=20)
    assert caught.value.param == "n"
    assert "128 answers of up to 3000 tokens with 21 each may have 8064000" in str(caught.value)
    assert f"at most {MOST_SCORES} log-probabilities" in str(caught.value)


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"n": 128, "logprobs": 20, "max_tokens": 391}, "n"),
        ({"logprobs": 20, "max_tokens": 50_000}, "max_tokens"),
        ({"n": 5, "best_of": 5, "prompt_logprobs": 20, "prompt": [1] * 100}, None),
        ({"n": 128, "logprobs": 20, "max_tokens": 390}, None),
        ({"n": 128, "max_tokens": 1 << 20}, None),
        ({"n": 128, "logprobs": 20, "max_tokens": 1 << 20, "stream": True}, None),
    ],
)
def test_what_a_response_may_have_is_told_before_it_is_made(
    asked: dict[str, Any], field: str | None
) -> None:
    if field is None:
        limit(**asked).check()
        return
    with pytest.raises(BadField) as caught:
        limit(**asked).check()
    assert caught.value.param == field


def test_scores_of_prompts_count_once_for_each_answer() -> None:
    options = read_completion(
        {"model": "m", "prompt": "x", "n": 100, "prompt_logprobs": 20}
    ).options
    LogprobLimit([(1,) * 499], options, 20).check()
    with pytest.raises(BadField, match="the prompts have 1050000 for 100 answers"):
        LogprobLimit([(1,) * 500], options, 20).check()


def test_an_answer_whose_length_the_request_does_not_say_is_ended_at_the_limit() -> None:
    counted = limit(n=2, logprobs=20)
    for _ in range(MOST_SCORES // 21):
        counted.add(GenerationOutput("0", 7, "a", SCORED))
    counted.add(GenerationOutput("0", 7, "a"))
    with pytest.raises(BadField, match="2 answers have more"):
        counted.add(GenerationOutput("0", 7, "a", SCORED))


def test_a_streamed_answer_keeps_no_scores() -> None:
    answer = CompletionChoice((1,), keeps_scores=False)
    answer.add(GenerationOutput("0", 7, "a", SCORED))
    assert answer.tokens == 1
    assert not answer.scores
