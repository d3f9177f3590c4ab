"""Log-probabilities in the three forms clients know: chat's, completions' and vLLM's. Pure."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from backends.llm.sampling.token_logprobs import TokenLogprobs

if TYPE_CHECKING:
    from schedulers.llm.gateway.engine_tokeniser import EngineTokeniser

Scores = Sequence[tuple[int, TokenLogprobs]]

LEAST = -9999.0
"""What stands for minus infinity, which JSON has no word for; OpenAI's number."""


class LikelyToken(msgspec.Struct, frozen=True):
    """A token, and how likely it was in its place."""

    token: str
    logprob: float
    bytes: list[int]


class ChosenToken(LikelyToken, frozen=True):
    """The token that was chosen, and the likeliest in its place."""

    top_logprobs: list[LikelyToken]


class ChatLogprobs(msgspec.Struct, frozen=True):
    """Log-probabilities of a chat's answer, token by token."""

    content: list[ChosenToken]
    refusal: None = None


class TextLogprobs(msgspec.Struct, frozen=True):
    """Log-probabilities of a text: lists of equal length."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class PromptLogprob(msgspec.Struct, frozen=True):
    """How likely a token of the prompt was, as vLLM tells it; ranks begin with 1."""

    logprob: float
    rank: int
    decoded_token: str


def chat_logprobs(tokeniser: "EngineTokeniser", scores: Scores, count: int) -> ChatLogprobs:
    """Each token with its bytes, and the `count` likeliest in its place."""
    content = []
    for token, scored in scores:
        likeliest = [LikelyToken(*_entry(tokeniser, *one)) for one in scored.likeliest[:count]]
        content.append(ChosenToken(*_entry(tokeniser, token, scored.logprob), likeliest))
    return ChatLogprobs(content)


def text_logprobs(
    tokeniser: "EngineTokeniser",
    tokens: Sequence[tuple[int, TokenLogprobs | None]],
    count: int,
    offset: int,
) -> tuple[TextLogprobs, int]:
    """Lists of equal length, and where the next token begins; `offset`: where the first does. A
    prompt's first token has no score."""
    texts = [text_of(tokeniser, token) for token, _ in tokens]
    offsets = []
    for text in texts:
        offsets.append(offset)
        offset += len(text)
    found = TextLogprobs(
        tokens=texts,
        token_logprobs=[None if one is None else _finite(one.logprob) for _, one in tokens],
        top_logprobs=[_top(tokeniser, token, one, count) for token, one in tokens],
        text_offset=offsets,
    )
    return found, offset


def prompt_logprobs(
    tokeniser: "EngineTokeniser", prompt: Sequence[int], scores: Sequence[TokenLogprobs], count: int
) -> list[dict[str, PromptLogprob] | None]:
    """vLLM's form: by token number, with ranks from 1."""
    found: list[dict[str, PromptLogprob] | None] = [None]
    for token, scored in zip(prompt[1:], scores, strict=False):
        ranked = {one: (at, value) for at, (one, value) in enumerate(scored.likeliest[:count])}
        ranked[token] = (scored.rank, scored.logprob)
        found.append(
            {
                str(one): PromptLogprob(_finite(value), rank + 1, text_of(tokeniser, one))
                for one, (rank, value) in ranked.items()
            }
        )
    return found


def text_of(tokeniser: "EngineTokeniser", token: int) -> str:
    """A token by itself; U+FFFD for bytes that are part of a character."""
    return tokeniser.bytes_of(token).decode("utf-8", "replace")


def _entry(
    tokeniser: "EngineTokeniser", token: int, logprob: float
) -> tuple[str, float, list[int]]:
    """The fields of a LikelyToken."""
    written = tokeniser.bytes_of(token)
    return written.decode("utf-8", "replace"), _finite(logprob), list(written)


def _top(
    tokeniser: "EngineTokeniser", token: int, scored: TokenLogprobs | None, count: int
) -> dict[str, float] | None:
    """The likeliest and the chosen one; of tokens that read alike, the likeliest counts."""
    if scored is None:
        return None
    found: dict[str, float] = {}
    for one, logprob in (*scored.likeliest[:count], (token, scored.logprob)):
        found.setdefault(text_of(tokeniser, one), _finite(logprob))
    return found


def _finite(logprob: float) -> float:
    return max(logprob, LEAST)
