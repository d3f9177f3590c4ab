"""A version that takes another's place while a prompt is being read: its own text side counts."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from starlette.requests import Request

from backends.llm.chat.control_text import ControlText
from backends.llm.tokens.tokeniser import Tokeniser
from schedulers.errors import ShutDown
from schedulers.llm.engine.tokeniser_thread import read
from schedulers.llm.engine_messages import Decode, Encode, TokeniserReply
from schedulers.llm.gateway.engine_tokeniser import EngineTokeniser
from schedulers.llm.gateway.language import Language
from server.dataplane import DataPlane
from server.errors import NotReady
from server.openai.endpoints import OpenAIEndpoints
from server.openai.language_inference import LanguageInference
from server.openai.prompt_limits import refuse_beyond_context
from server.rest.endpoint import BodyLimits
from server.rest.openai_errors import BadField
from support.grpc import Shelf, put
from support.openai import tokenizer, tokens_of
from support.server import identity_config


def language(context: int = 64) -> Language:
    """Whose engine is this process."""
    tokeniser = Tokeniser(tokenizer())

    async def ask(asked: Encode | Decode) -> TokeniserReply:
        return read(tokeniser, asked)

    remote = EngineTokeniser()
    control_text = ControlText(tokeniser.specials, tokeniser.markers)
    remote.connect(ask, tokeniser.table(264), control_text)
    return Language(remote, None, context, 264, (2,))


def made(work: Callable[[OpenAIEndpoints, Any, Any], Awaitable[Any]]) -> Any:
    """What `work` gives with a listener, a request and a served version."""

    async def run() -> Any:
        served = put(identity_config("talker"))
        served.language = language()
        dataplane = DataPlane(Shelf([served]), "modelyard", "0")
        listener = OpenAIEndpoints(dataplane, BodyLimits(1000, 10))
        request = Request({"type": "http", "method": "POST", "path": "/", "headers": []})
        try:
            return await work(listener, request, served)
        finally:
            await listener.close()
            await served.scheduler.close()

    return asyncio.run(run())


def caller(request: Request) -> LanguageInference:
    made = LanguageInference(request, 0)
    made.read(b'{"model": "talker"}', 10)
    return made


def test_a_text_is_read_again_for_the_version_that_answers() -> None:
    async def work(listener: OpenAIEndpoints, request: Request, served: Any) -> None:
        newer, seen = language(), []

        async def make(language: Language) -> str:
            seen.append(language)
            served.language = newer
            return f"made {len(seen)}"

        found, text = await listener._made(caller(request), find_first(listener, request), make)
        assert (found.language, text, len(seen)) == (newer, "made 2", 2)

    made(work)


def test_versions_that_never_stand_still_are_not_ready() -> None:
    async def work(listener: OpenAIEndpoints, request: Request, served: Any) -> None:
        async def make(_: Language) -> None:
            served.language = language()

        with pytest.raises(NotReady, match="change faster than they can be asked"):
            await listener._made(caller(request), find_first(listener, request), make)

    made(work)


def find_first(listener: OpenAIEndpoints, request: Request) -> Any:
    from server.openai.language_inference import find

    return find(listener._dataplane, caller(request))


def test_a_version_that_ends_while_it_reads_is_asked_no_more_where_another_has_taken_over() -> None:
    async def work(listener: OpenAIEndpoints, request: Request, served: Any) -> None:
        older, newer = served.language, language()

        async def make(asked: Language) -> str:
            if asked is older:
                served.language = newer
                raise ShutDown("gone")
            return "made"

        found, text = await listener._made(caller(request), find_first(listener, request), make)
        assert (found.language, text) == (newer, "made")

    made(work)


def test_a_version_that_ends_without_another_is_told_as_it_is() -> None:
    async def work(listener: OpenAIEndpoints, request: Request, served: Any) -> None:
        async def make(_: Language) -> None:
            raise ShutDown("gone")

        with pytest.raises(ShutDown, match="gone"):
            await listener._made(caller(request), find_first(listener, request), make)

    made(work)


def test_texts_and_tokens_are_read_in_their_order_and_a_far_too_long_text_not_at_all() -> None:
    async def work(listener: OpenAIEndpoints, request: Request, served: Any) -> None:
        wide = language(4096)
        text = "ä" * 5000
        (tokens,) = await listener._texts.of_prompts(wide, (text,), True, "prompt")
        assert len(tokens) == 10_001
        many = await listener._texts.of_prompts(wide, ["ab", (1, 2), "c"] * 20, True, "prompt")
        assert many == [tuple(tokens_of("ab")), (1, 2), tuple(tokens_of("c"))] * 20
        said = await listener._texts.of_tokens(wide, tokens)
        assert said == "<s>" + text
        with pytest.raises(BadField, match="262144 characters are taken; prompt has 300000"):
            await listener._texts.of_prompts(wide, ["x" * 300_000], True, "prompt")

    made(work)


@pytest.mark.parametrize(
    ("prompt", "answer", "fits"),
    [(64, 0, True), (63, None, True), (64, None, False), (60, 4, True), (60, 5, False)],
)
def test_a_prompt_and_its_answer_share_the_context(
    prompt: int, answer: int | None, fits: bool
) -> None:
    if fits:
        refuse_beyond_context(language(), prompt, answer, "prompt")
        return
    with pytest.raises(BadField, match="maximum context length is 64 tokens"):
        refuse_beyond_context(language(), prompt, answer, "prompt")
