"""What is asked of the process that renders chats, and what it answers; JSON, as chats came."""

from typing import Any

import msgspec

from backends.llm.chat.template import Chat, ChatTemplate
from backends.process.messages import with_whole_text

MAX_REQUEST_BYTES = 1 << 26
MAX_ANSWER_BYTES = (1 << 26) + 64
"""As many as the characters can have that `backends.llm.chat.render` makes at most."""


class RenderRequest(msgspec.Struct, frozen=True):
    """Render `template`, a Jinja text, with `variables`; `continues`: end within the last message,
    which is not over."""

    template: str
    variables: dict[str, Any]
    continues: bool


class RendererStarted(msgspec.Struct, frozen=True, tag="started"):
    """The first message of the process."""


class RenderedChat(msgspec.Struct, frozen=True, tag="rendered"):
    """The chat as the model is to read it."""

    text: str


class RenderRefused(msgspec.Struct, frozen=True, tag="refused"):
    """The template cannot render the chat; `reason`: often in the template's own words."""

    reason: str


RenderAnswer = RendererStarted | RenderedChat | RenderRefused

_requests = msgspec.json.Decoder(RenderRequest)
_answers: msgspec.json.Decoder[RenderAnswer] = msgspec.json.Decoder(RenderAnswer)


def request_for(template: ChatTemplate, chat: Chat) -> RenderRequest:
    return RenderRequest(template.text_for(chat), template.variables_for(chat), chat.continues)


def encode(message: RenderRequest | RenderAnswer) -> bytes:
    """Half of a surrogate pair, for which UTF-8 has no form, is sent as U+FFFD. Raises TypeError
    for what has no form in JSON."""
    try:
        return msgspec.json.encode(message)
    except UnicodeEncodeError:
        return msgspec.json.encode(with_whole_text(msgspec.to_builtins(message)))


def decode_request(payload: bytes) -> RenderRequest:
    return _requests.decode(payload)


def decode_answer(payload: bytes) -> RenderAnswer:
    """Raises ValueError (msgspec.DecodeError) for anything else."""
    return _answers.decode(payload)
