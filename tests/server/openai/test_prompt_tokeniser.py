"""Chats rendered in a process of their own, which templates may hang and fill without harm."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from backends.llm.chat.template import Chat, ChatTemplate
from server.errors import NotReady
from server.openai.prompt_tokeniser import ChatRenderer
from server.rest.openai_errors import BadField
from support.chat_templates import CHATML

HELLO = Chat([{"role": "user", "content": "Hello"}])
SAID = "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
GOOD = ChatTemplate({"default": CHATML}, {})
ENDLESS = ChatTemplate(
    {"default": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"},
    {},
)
GREEDY = ChatTemplate(
    {
        "default": "{% set ns = namespace(a=['x']) %}{% for i in range(60) %}"
        "{% set ns.a = ns.a + ns.a %}{% endfor %}{{ ns.a | length }}"
    },
    {},
)


@asynccontextmanager
async def renderer(render_s: float = 20.0) -> AsyncIterator[ChatRenderer]:
    made = ChatRenderer(render_s)
    try:
        yield made
    finally:
        await made.close()


async def refusal(made: ChatRenderer, template: ChatTemplate) -> str:
    with pytest.raises(BadField) as caught:
        await made.render(template, HELLO)
    assert (caught.value.param, caught.value.code) == ("messages", "chat_template_failed")
    return str(caught.value)


def test_a_chat_is_rendered_and_the_process_kept() -> None:
    async def run() -> None:
        async with renderer() as made:
            assert await made.render(GOOD, HELLO) == SAID
            process = made._process
            many = await asyncio.gather(*(made.render(GOOD, HELLO) for _ in range(50)))
            assert set(many) == {SAID}
            assert made._process is process

    asyncio.run(run())


def test_a_template_without_end_is_ended_and_not_tried_again_at_once() -> None:
    async def run() -> None:
        async with renderer(1.0) as made:
            assert "took longer than 1 s" in await refusal(made, ENDLESS)
            assert "a moment ago" in await refusal(made, ENDLESS)
            made._render_s = 60.0
            assert await made.render(GOOD, HELLO) == SAID

    asyncio.run(run())


def test_a_chat_that_is_large_does_not_bar_its_template() -> None:
    async def run() -> None:
        slow_when_large = ChatTemplate(
            {
                "default": "{% if messages[0].content | length > 5 %}"
                + ENDLESS.texts["default"]
                + "{% endif %}ok"
            },
            {},
        )
        async with renderer(1.0) as made:
            large = Chat([{"role": "user", "content": "x" * (1 << 18)}])
            with pytest.raises(BadField, match="took longer than 1 s"):
                await made.render(slow_when_large, large)
            made._render_s = 60.0
            assert await made.render(slow_when_large, HELLO) == "ok"

    asyncio.run(run())


def test_a_template_that_takes_all_memory_fails_alone() -> None:
    async def run() -> None:
        async with renderer() as made:
            assert "memory" in await refusal(made, GREEDY)
            assert await made.render(GOOD, HELLO) == SAID

    asyncio.run(run())


def test_a_killed_process_is_started_again() -> None:
    async def run() -> None:
        async with renderer() as made:
            await made.render(GOOD, HELLO)
            assert made._process is not None
            os.kill(made._process.pid, signal.SIGKILL)  # and the loop has not heard of it yet
            assert await made.render(GOOD, HELLO) == SAID

    asyncio.run(run())


def test_who_gives_up_leaves_the_process_to_the_others() -> None:
    async def run() -> None:
        async with renderer() as made:
            await made.render(GOOD, HELLO)
            process = made._process
            impatient = asyncio.ensure_future(made.render(GOOD, HELLO))
            patient = asyncio.ensure_future(made.render(GOOD, HELLO))
            await asyncio.sleep(0)
            impatient.cancel()
            assert await patient == SAID
            assert made._process is process

    asyncio.run(run())


def test_the_process_ends_with_the_renderer() -> None:
    async def run() -> None:
        made = ChatRenderer()
        await made.render(GOOD, HELLO)
        process = made._process
        assert process is not None
        waiting = asyncio.ensure_future(made.render(GOOD, HELLO))
        await made.close()
        assert not process.is_alive
        with pytest.raises(NotReady):
            await made.render(GOOD, HELLO)
        await asyncio.gather(waiting, return_exceptions=True)
        assert made._process is None

    asyncio.run(run())
