"""How long a prompt may be, and which tokens a model knows: refused in OpenAI's words. Pure."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from backends.llm.chat.template import Chat
from server.rest.openai_errors import BadField

if TYPE_CHECKING:
    from schedulers.llm.gateway.language import Language

LONGEST_TOKEN = 64
"""Characters a token stands for, at most and on the average of a text that fills the context."""
UNREAD = 2
"""A chat may weigh as many times what fits: templates leave some of it out."""


def weight_within(language: "Language", chat: Chat) -> int:
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
    """Raises BadField where the model would not be given the tools it may call."""
    if language.template is not None and language.tools is None:
        raise BadField(
            f"the chat template of '{model}' does not look at tools, so that none can be called; "
            "give its checkpoint a template that does, or leave tools out, or set tool_choice to "
            "'none'",
            "tools",
            "unsupported",
        )


def refuse_far_too_long(language: "Language", characters: int, name: str) -> None:
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
    parts = f"{prompt} in the {name}" + (f", {answer} in the completion" if answer else "")
    raise BadField(
        f"This model's maximum context length is {context} tokens. However, you requested "
        f"{prompt + least} tokens ({parts}). Please reduce the length of the {name}"
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
