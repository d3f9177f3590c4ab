"""Texts to tokens for the OpenAI API: rendered by a process, tokenised by the model's engine."""

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from backends.llm.chat.template import Chat
from repository.sandbox.policy import Sandbox
from server.openai.chat import spoken
from server.openai.completions import Prompt
from server.openai.rendering import ChatRenderer
from server.rest.openai_errors import BadField

if TYPE_CHECKING:
    from schedulers.llm.language import Language

LONGEST_TOKEN = 64
"""Characters a token stands for, at most and on the average of a text that fills the context."""
UNREAD = 2
"""A chat may weigh as many times what fits: templates leave some of it out."""
BRIEF = 1 << 13
"""What a chat may weigh to be guarded on the loop: 2 ms at worst."""


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
        _refuse_far_too_long(language, size, "messages")
        weight = _weight_within(language, chat)
        chat = spoken(chat, language.template)
        guards = language.content_is_text
        if guards:
            chat = await self._guarded(language, chat, weight)
        text = await self._renderer.render(language.template, chat)
        _refuse_far_too_long(language, len(text), "messages")
        (tokens,) = await language.tokeniser.encode((text,), special=special, marked=guards)
        return tokens

    async def of_prompts(
        self, language: "Language", prompts: Sequence[Prompt], special: bool, name: str
    ) -> list[tuple[int, ...]]:
        """The tokens of each; `name`: the field they came from. Raises BadField."""
        texts = [one for one in prompts if isinstance(one, str)]
        for text in texts:
            _refuse_far_too_long(language, len(text), name)
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


def _weight_within(language: "Language", chat: Chat) -> int:
    """Characters and values of a chat with its tools, documents and variables, each of which costs
    the guard and the template something. Raises BadField for far too many."""
    most = UNREAD * language.context * LONGEST_TOKEN
    weight = 0
    left: list[Any] = [chat.messages, chat.tools, chat.documents, chat.variables]
    while left and weight <= most:
        value = left.pop()
        weight += 1
        if isinstance(value, str):
            weight += len(value)
        elif isinstance(value, Mapping):
            weight += sum(map(len, value))
            left.extend(value.values())
        elif isinstance(value, list | tuple):
            left.extend(value)
    if weight > most:
        raise BadField(
            f"the messages, tools, documents and template variables have more than {most} "
            f"characters and values together, for a context of {language.context} tokens. Please "
            "reduce their length.",
            "messages",
            "context_length_exceeded",
        )
    return weight


def refuse_untold(language: "Language", model: str) -> None:
    """Raises BadField where the model would never hear of the tools it may call."""
    if language.template is not None and language.tools is None:
        raise BadField(
            f"the chat template of '{model}' does not look at tools, so that none can be called; "
            "give its checkpoint a template that does, or leave tools out, or set tool_choice to "
            "'none'",
            "tools",
            "unsupported",
        )


def _refuse_far_too_long(language: "Language", characters: int, name: str) -> None:
    """Nobody renders or tokenises what cannot fit. Raises BadField."""
    most = language.context * LONGEST_TOKEN
    if characters > most:
        raise BadField(
            f"This model's maximum context length is {language.context} tokens, for which "
            f"{most} characters are taken; {name} has {characters}. Please reduce its length.",
            name,
            "context_length_exceeded",
        )


def refuse_beyond_context(language: "Language", prompt: int, answer: int | None, name: str) -> None:
    """Raises BadField, in OpenAI's words, for a prompt that with its answer is too long; `answer`
    None is at least one token."""
    context, least = language.context, 1 if answer is None else answer
    if prompt + least <= context:
        return
    asked = f"{prompt} in the {name}" + (f", {answer} in the completion" if answer else "")
    raise BadField(
        f"This model's maximum context length is {context} tokens. However, you requested "
        f"{prompt + least} tokens ({asked}). Please reduce the length of the {name}"
        + (" or completion." if answer else "."),
        name,
        "context_length_exceeded",
    )


def refuse_unknown_tokens(language: "Language", tokens: tuple[int, ...], name: str) -> None:
    """Raises BadField."""
    if not tokens:
        raise BadField(f"{name} has no tokens; it needs at least one", name)
    worst = max(tokens)
    if worst >= language.vocabulary:
        last = language.vocabulary - 1
        raise BadField(f"{name} has the token {worst}; the model's tokens are 0 to {last}", name)
