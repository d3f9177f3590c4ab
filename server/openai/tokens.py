"""Text to tokens and back, as vLLM offers it: what is asked for. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from backends.llm.chat.template import Chat
from server.openai.answers.logprobs import text_of
from server.openai.bodies.chat import ConversationBody, read_conversation
from server.openai.bodies.options import ModelName, TokenCount
from server.openai.bodies.request_fields import OpenAIBody, read_body, wanted
from server.rest.openai_errors import BadField

if TYPE_CHECKING:
    from schedulers.llm.gateway.language import Language

MOST = 1 << 16
"""Tokens that are told as text."""


class TextBody(OpenAIBody, frozen=True):
    """A text to make tokens of."""

    model: ModelName
    prompt: str
    add_special_tokens: bool | None = None
    return_token_strs: bool | None = None


class TokensBody(OpenAIBody, frozen=True):
    """Tokens to make text of."""

    model: ModelName
    tokens: Annotated[
        list[TokenCount], Meta(max_length=MOST), wanted(f"a list of at most {MOST} tokens")
    ]


class TokenizedText(msgspec.Struct, frozen=True):
    """The tokens of a text, and the longest text that the model reads."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None


class DetokenizedText(msgspec.Struct, frozen=True):
    """The text of tokens."""

    prompt: str


@dataclass(frozen=True, slots=True)
class TokenizeRequest:
    """`text`: a prompt as it stands, or a chat. `names`: tokens are to be told as text as well."""

    text: str | Chat
    special: bool
    names: bool


def read_tokenize(document: dict[str, Any]) -> TokenizeRequest:
    """Raises BadField."""
    if document.get("messages") is not None:
        chat = read_body(ConversationBody, document)
        text, special, _ = read_conversation(chat)
        return TokenizeRequest(text, special, chat.return_token_strs is True)
    body = read_body(TextBody, document)
    special = body.add_special_tokens is not False
    return TokenizeRequest(body.prompt, special, body.return_token_strs is True)


def tokenised(
    request: TokenizeRequest, language: "Language", tokens: Sequence[int]
) -> TokenizedText:
    """Raises BadField."""
    if request.names and len(tokens) > MOST:
        name = "return_token_strs"
        raise BadField(f"{name} is offered for {MOST} tokens; these are {len(tokens)}", name)
    texts = [text_of(language.tokeniser, token) for token in tokens] if request.names else None
    return TokenizedText(len(tokens), language.context, list(tokens), texts)


def read_detokenize(document: dict[str, Any]) -> tuple[int, ...]:
    """Raises BadField."""
    return tuple(read_body(TokensBody, document).tokens)
