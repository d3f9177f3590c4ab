"""How the pieces of an answer are told: token by token, in KServe's two ways, and not for ever."""

import pytest

from backends.llm.sampling.params import SamplingParams
from schedulers.llm.errors import AnswerUnread
from schedulers.llm.gateway.llm_reply import MOST_UNREAD, LLMReply
from schedulers.llm.gateway.llm_request import LLMRequest
from schedulers.llm.gateway.text_input import TextInputRequest
from schedulers.llm.generation import OUTPUT, Finish, GenerateRequest, GenerationOutput
from schedulers.request import InferRequest, InferResponse

END = GenerationOutput("engine-2", 6, "b", finish=Finish.LENGTH)


def ticket(question: LLMRequest) -> LLMReply:
    return LLMReply(InferRequest("m", 1, {}, 1, None, 0, id="r"), question)


def texts(streams: bool, prepends: bool = False) -> LLMReply:
    ask = TextInputRequest("once ", streams, prepends, {"max_tokens": 2}, SamplingParams())
    return ticket(LLMRequest(prompts=("once ",), text_input=ask).tokenised(((1, 2),)))


def read(reply: LLMReply) -> list[InferResponse]:
    responses = []
    while (response := reply.unread) is not None:
        responses.append(response)
        reply._first = reply._more.popleft() if reply._more else None
    return responses


def told(reply: LLMReply) -> list[str]:
    return [response.outputs["text_output"][0].decode() for response in read(reply)]


def test_a_listener_hears_every_output_under_the_name_it_gave() -> None:
    reply = ticket(LLMRequest((GenerateRequest("mine", (1,), 2),)))
    assert reply.send_output(0, GenerationOutput("engine-1", 5, "a"), last=False)
    assert reply.send_output(0, END, last=True)
    heard = [response.parameters[OUTPUT] for response in read(reply)]
    assert [(index, one.id, one.token) for index, one in heard] == [(0, "mine", 5), (0, "mine", 6)]
    assert reply.ended


def test_a_stream_of_texts_leaves_out_what_has_none() -> None:
    reply = texts(streams=True)
    assert reply.send_output(0, GenerationOutput("e", 5, "a"), last=False)
    assert not reply.send_output(0, GenerationOutput("e", 5, ""), last=False)
    assert reply.send_output(0, END, last=True)
    assert told(reply) == ["a", "b"]


@pytest.mark.parametrize(("prepends", "expected"), [(True, "once ab"), (False, "ab")])
def test_one_text_comes_at_the_end(prepends: bool, expected: str) -> None:
    reply = texts(streams=False, prepends=prepends)
    assert not reply.send_output(0, GenerationOutput("e", 5, "a"), last=False)
    assert not reply.has_sent
    assert reply.send_output(0, END, last=True)
    assert told(reply) == [expected]


def test_an_answer_that_begins_again_forgets_what_nobody_heard() -> None:
    reply = texts(streams=False)
    reply.send_output(0, GenerationOutput("e", 5, "lost"), last=False)
    reply.begin_again()
    reply.send_output(0, END, last=True)
    assert told(reply) == ["b"]


def test_an_answer_nobody_reads_is_given_up_but_its_end_is_told() -> None:
    reply = texts(streams=True)
    for _ in range(MOST_UNREAD):
        reply.send_output(0, GenerationOutput("e", 5, "a"), last=False)
    with pytest.raises(AnswerUnread, match="were not read"):
        reply.send_output(0, GenerationOutput("e", 5, "a"), last=False)
    assert reply.send_output(0, END, last=True)
    assert reply.ended
