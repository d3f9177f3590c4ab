"""Texts to tokens for the OpenAI API: rendered by a process, tokenised by the model's engine.

`backends.llm.chat.render` renders, in a process that may hang or die of a template: it is started
when first needed, and killed when a template takes too long. A template that did so with a small
chat is not tried again for a while.
"""

import asyncio
import logging
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

from backends.llm.chat.render_messages import (
    MAX_ANSWER_BYTES,
    MAX_REQUEST_BYTES,
    RenderAnswer,
    RenderedChat,
    RenderRefused,
    decode_answer,
    encode,
    request_for,
)
from backends.llm.chat.template import Chat, ChatTemplate
from repository.process.child import ChildProgram
from repository.process.message_child import MessageChild
from repository.sandbox.children import child_environment
from repository.sandbox.policy import Sandbox
from server.errors import NotReady
from server.openai.bodies.chat import spoken
from server.openai.bodies.completions import Prompt
from server.openai.prompt_limits import refuse_far_too_long, weight_within
from server.rest.openai_errors import BadField

if TYPE_CHECKING:
    from schedulers.llm.gateway.language import Language

BRIEF = 1 << 13
"""What a chat may weigh to be guarded on the loop: 2 ms at worst."""
RENDER_S = 2.0
START_S = 30.0
"""A machine under load takes long to start a process, which is not the template's fault."""
PENANCE_S = 60.0
BLAMED_BYTES = 1 << 17
"""A chat this small is not what takes so long: the template is tried no more for PENANCE_S."""
END_S = 5.0

_log = logging.getLogger(__name__)


class PromptTokeniser:
    """Belongs to one event loop. `close` it."""

    def __init__(self, sandbox: Sandbox | None = None) -> None:
        """`sandbox`: of the process that renders templates."""
        self._renderer = ChatRenderer(sandbox=sandbox)
        self._guards = ThreadPoolExecutor(1, "chats")

    async def of_chat(self, language: "Language", chat: Chat, special: bool) -> tuple[int, ...]:
        """A chat's tokens. Raises BadField."""
        if language.template is None:
            raise BadField(
                "this model has no chat template; give it a prompt at /v1/completions",
                "messages",
                "no_chat_template",
            )
        contents = (one.get("content") for one in chat.messages)
        size = sum(len(content) for content in contents if content is not None)
        refuse_far_too_long(language, size, "messages")
        weight = weight_within(language, chat)
        chat = spoken(chat, language.template)
        guards = language.content_is_text
        if guards:
            chat = await self._guarded(language, chat, weight)
        text = await self._renderer.render(language.template, chat)
        refuse_far_too_long(language, len(text), "messages")
        (tokens,) = await language.tokeniser.encode((text,), special=special, marked=guards)
        return tokens

    async def of_prompts(
        self, language: "Language", prompts: Sequence[Prompt], special: bool, name: str
    ) -> list[tuple[int, ...]]:
        """The tokens of each; `name`: the field they came from. Raises BadField."""
        texts = [one for one in prompts if isinstance(one, str)]
        for text in texts:
            refuse_far_too_long(language, len(text), name)
        encoded = iter(await language.tokeniser.encode(texts, special=special))
        return [next(encoded) if isinstance(one, str) else one for one in prompts]

    async def echoed(self, language: "Language", prompts: Sequence[Prompt]) -> list[str]:
        """Prompts as text; special tokens are left out of what comes as tokens."""
        decode = language.tokeniser.decode
        return [one if isinstance(one, str) else await decode(one) for one in prompts]

    async def of_tokens(self, language: "Language", tokens: tuple[int, ...]) -> str:
        """What tokens read as, special ones included."""
        return await language.tokeniser.decode(tokens, skip_special=False)

    async def close(self) -> None:
        await self._renderer.close()
        self._guards.shutdown(wait=False, cancel_futures=True)

    async def _guarded(self, language: "Language", chat: Chat, weight: int) -> Chat:
        """Control tokens in its texts marked as text. Raises BadField."""
        guarded = language.tokeniser.control_text.guarded
        try:
            if weight <= BRIEF:
                return guarded(chat)
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._guards, guarded, chat)
        except RecursionError:
            raise BadField("the chat is nested too deeply", "messages") from None


class ChatRenderer:
    """One chat at a time; belongs to one event loop. `close` it."""

    def __init__(self, render_s: float = RENDER_S, sandbox: Sandbox | None = None) -> None:
        """`sandbox`: what the process may do; None for whatever this one may."""
        self._render_s = render_s
        self._sandbox = sandbox
        self._turn = asyncio.Lock()
        self._asking: set[asyncio.Task[RenderAnswer]] = set()
        self._process: MessageChild | None = None
        self._closed = False
        self._barred: dict[int, tuple[ChatTemplate, float]] = {}

    async def render(self, template: ChatTemplate, chat: Chat) -> str:
        """The chat as the model reads it. Raises BadField with what the template says."""
        self._refuse_barred(template)
        request = encode(request_for(template, chat))
        if len(request) > MAX_REQUEST_BYTES:
            raise _failed(f"the messages are larger than {MAX_REQUEST_BYTES >> 20} MiB")
        asking = asyncio.ensure_future(self._in_turn(template, request))
        self._asking.add(asking)
        asking.add_done_callback(self._asking.discard)
        answer = await asyncio.shield(asking)  # who gives up leaves the process to the others
        if isinstance(answer, RenderedChat):
            return answer.text
        reason = answer.reason if isinstance(answer, RenderRefused) else "no answer"
        raise _failed(f"the model's chat template refuses these messages: {reason}")

    async def close(self) -> None:
        self._closed = True
        async with self._turn:
            await self._end()

    async def _in_turn(self, template: ChatTemplate, request: bytes) -> RenderAnswer:
        async with self._turn:
            self._refuse_barred(template)
            if self._process is not None:
                with suppress(EOFError, ConnectionError):
                    return await self._ask(template, request)
            # None was there, or it has died since the last chat, or of this one.
            try:
                return await self._ask(template, request)
            except (EOFError, ConnectionError):
                what = "the model's chat template ended the process that rendered it"
                raise _failed(what) from None

    async def _ask(self, template: ChatTemplate, request: bytes) -> RenderAnswer:
        """Raises EOFError or ConnectionError if the process ends."""
        process = await self._running()
        try:
            async with asyncio.timeout(self._render_s):
                return await _ask(process, request)
        except TimeoutError:
            await self._end()
            _log.warning("a chat template took longer than %g s and was killed", self._render_s)
            if len(request) <= BLAMED_BYTES:
                self._barred[id(template)] = (template, time.monotonic() + PENANCE_S)
            what = f"the model's chat template took longer than {self._render_s:g} s"
            raise _failed(what) from None
        except BaseException:
            await self._end()  # an answer nobody reads would be the next one's
            raise

    async def _running(self) -> MessageChild:
        """The process, started if there is none. Raises NotReady."""
        if self._closed:
            raise NotReady("the server is stopping")
        if self._process is not None:
            if self._process.is_alive:
                return self._process
            await self._end()
        try:
            async with asyncio.timeout(START_S):
                self._process = await _start(self._sandbox)
                await self._process.receive(MAX_ANSWER_BYTES)  # it has started
        except (OSError, TimeoutError, EOFError) as error:
            await self._end()
            why = str(error) or type(error).__name__
            raise NotReady(f"the process that renders chats does not start: {why}") from error
        except BaseException:
            await self._end()
            raise
        return self._process

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            await process.stop(END_S)

    def _refuse_barred(self, template: ChatTemplate) -> None:
        _, until_s = self._barred.get(id(template), (None, 0.0))
        if until_s <= time.monotonic():
            self._barred.pop(id(template), None)
            return
        raise _failed(
            f"the model's chat template took longer than {self._render_s:g} s a moment ago; it is "
            f"tried again after {PENANCE_S:g} s"
        )


async def _start(sandbox: Sandbox | None) -> MessageChild:
    program = ChildProgram(
        "backends.llm.chat.render", "modelyard renderer", "renderer", child_environment(sandbox)
    )
    return await MessageChild.start(program)


async def _ask(process: MessageChild, request: bytes) -> RenderAnswer:
    payload = await process.ask(request, MAX_ANSWER_BYTES)
    try:
        return decode_answer(payload)
    except ValueError as error:
        raise ConnectionError(f"an invalid message: {error}") from None


def _failed(message: str) -> BadField:
    return BadField(message, "messages", "chat_template_failed")
