"""How much a language model takes on, and when it says to come back."""

import pytest

from backends.llm.settings import ServeSettings
from schedulers.llm.errors import TooMuchWaiting
from schedulers.llm.gateway.admission import Admission
from schedulers.llm.gateway.llm_reply import LLMReply
from schedulers.llm.gateway.llm_request import LLMRequest
from schedulers.request import InferRequest

SETTINGS = ServeSettings(max_running=2, max_waiting=1, max_waiting_tokens=100, step_tokens=10)


def ticket() -> LLMReply:
    return LLMReply(InferRequest("m", 1, {}, 1, None, 0), LLMRequest())


def taken(admission: Admission, answers: int, tokens: int) -> LLMReply:
    admission.admit(answers, tokens, 1)
    made = ticket()
    admission.take(made, answers, tokens)
    return made


def test_answers_are_bounded_by_those_running_and_those_waiting() -> None:
    admission = Admission(SETTINGS)
    first = taken(admission, 2, 5)
    taken(admission, 1, 5)
    with pytest.raises(TooMuchWaiting, match="3 answers are running"):
        admission.admit(1, 5, 1)
    admission.admit(1, 5, 2)  # a second engine runs two more
    admission.leave(first)
    admission.admit(2, 5, 1)


def test_prompt_tokens_count_until_they_are_computed() -> None:
    admission = Admission(SETTINGS)
    first = taken(admission, 1, 90)
    with pytest.raises(TooMuchWaiting, match="90 prompt tokens wait already"):
        admission.admit(1, 11, 1)
    admission.start(first)
    admission.admit(1, 100, 1)


def test_one_alone_is_let_in_whatever_its_size() -> None:
    Admission(SETTINGS).admit(50, 10_000, 1)


def test_an_estimate_is_corrected_when_the_tokens_are_known() -> None:
    admission = Admission(SETTINGS)
    first = taken(admission, 1, 10)
    admission.take(first, 1, 95)
    with pytest.raises(TooMuchWaiting):
        admission.admit(1, 6, 1)
    admission.leave(first)
    admission.leave(first)  # a second time changes nothing
    admission.admit(3, 100, 1)


def test_it_says_when_half_of_what_waits_will_have_been_computed() -> None:
    admission = Admission(SETTINGS)
    admission.note(0, 0)
    admission.note(100, 10_000_000_000)  # ten tokens a second
    taken(admission, 1, 80)
    with pytest.raises(TooMuchWaiting) as refused:
        admission.admit(1, 50, 1)
    assert refused.value.retry_after_s == 4.0
