"""Text to tokens and back, as vLLM offers it: what is asked for. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from backends.llm.chat.template import Chat
from server.openai.chat import read_conversation
from server.openai.logprobs import text_of
from server.openai.options import MAX_TOKENS
from server.openai.request_fields import RequestFields
from server.rest.openai_errors import BadField

if TYPE_CHECKING:
    from schedulers.llm.language import Language

MOST = 1 << 16
"""Tokens that are told as text."""


@dataclass(frozen=True, slots=True)
class TokenizeRequest:
    """`text`: a prompt as it stands, or a chat. `names`: tokens are to be told as text as well."""

    text: str | Chat
    special: bool
    names: bool


def read_tokenize(fields: RequestFields) -> TokenizeRequest:
    """Raises BadField."""
    fields.pass_over(("model",))
    names = fields.flag("return_token_strs")
    text: str | Chat
    if "messages" in fields:
        fields.only("chat_template")
        text, special, _ = read_conversation(fields)
    else:
        given = fields.needed("prompt")
        if not isinstance(given, str):
            raise fields.refused("prompt", given, "a string")
        text, special = given, fields.flag("add_special_tokens", True)
    fields.finish()
    return TokenizeRequest(text, special, names)


def tokenised(
    asked: TokenizeRequest, language: "Language", tokens: Sequence[int]
) -> dict[str, Any]:
    """Raises BadField."""
    if asked.names and len(tokens) > MOST:
        name = "return_token_strs"
        raise BadField(f"{name} is offered for {MOST} tokens; these are {len(tokens)}", name)
    texts = [text_of(language.tokeniser, token) for token in tokens] if asked.names else None
    return {
        "count": len(tokens),
        "max_model_len": language.context,
        "tokens": list(tokens),
        "token_strs": texts,
    }


def read_detokenize(fields: RequestFields) -> tuple[int, ...]:
    """Raises BadField."""
    fields.pass_over(("model",))
    given = fields.needed("tokens")
    if not isinstance(given, list) or len(given) > MOST:
        raise fields.refused("tokens", given, f"a list of at most {MOST} tokens")
    tokens = tuple(
        fields.whole_in(f"tokens[{at}]", one, 0, MAX_TOKENS) for at, one in enumerate(given)
    )
    fields.finish()
    return tokens
