"""A text completion as it is asked for: prompts as text or tokens, and how to answer. Pure."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from msgspec import Meta

from server.openai.bodies.options import (
    MAX_ANSWERS,
    MAX_TOKENS,
    AnswerCount,
    GenerationBody,
    GenerationOptions,
    LogprobCount,
    TokenCount,
    read_options,
)
from server.openai.bodies.request_fields import NotOffered, not_offered, read_body, refused, wanted
from server.rest.openai_errors import BadField

Prompt = str | tuple[int, ...]

MAX_PROMPTS, MAX_PROMPT_TOKENS = 2048, 1 << 20
DEFAULT_TOKENS = 16
"""What OpenAI answers where `max_tokens` is not given."""

_PROMPTS = "a string, a list of strings, a list of tokens, or a list of lists of tokens"
_TOKENS = {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": MAX_TOKENS - 1}}

Prompts = Annotated[
    str
    | Annotated[
        list[Any],
        Meta(
            extra_json_schema={
                "minItems": 1,
                "anyOf": [{"items": {"anyOf": [{"type": "string"}, _TOKENS]}}, _TOKENS],
            }
        ),
    ],
    wanted(f"{_PROMPTS}, and not empty"),
]
"""One text or several, one list of tokens or several."""


class CompletionBody(GenerationBody, kw_only=True, frozen=True):
    """Texts or tokens to continue."""

    prompt: Prompts
    echo: bool | None = None
    max_tokens: TokenCount | None = None
    best_of: AnswerCount | None = None
    logprobs: LogprobCount | None = None

    suffix: Annotated[Literal[""], not_offered()] | None = None
    prompt_embeds: NotOffered = None


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """`echo`: the prompt is repeated before the answer. `silent`: nothing but the prompt is wanted
    back (`max_tokens` 0). `special`: the tokeniser adds its own tokens around a text."""

    prompts: tuple[Prompt, ...]
    echo: bool
    silent: bool
    special: bool
    options: GenerationOptions


def read_completion(document: dict[str, Any]) -> CompletionRequest:
    """Raises BadField."""
    body = read_body(CompletionBody, document)
    prompts = read_prompts(body.prompt, "prompt")
    echo, special = body.echo is True, body.add_special_tokens is not False
    max_tokens, best_of = body.max_tokens, body.best_of
    silent = max_tokens == 0
    if silent and not echo:
        raise BadField("max_tokens is 0, which leaves nothing to say without echo", "max_tokens")
    limit = 1 if silent else DEFAULT_TOKENS if max_tokens is None else max_tokens
    options = read_options(body, limit, body.logprobs)
    if best_of not in (None, options.count):
        raise BadField(
            f"best_of is {best_of} and n {options.count}; every answer that is made is given, so "
            "they must be equal",
            "best_of",
        )
    if len(prompts) * options.count > MAX_ANSWERS:
        raise BadField(
            f"{len(prompts)} prompts with n {options.count} are more than {MAX_ANSWERS} answers",
            "n" if len(prompts) <= MAX_ANSWERS else "prompt",
        )
    return CompletionRequest(prompts, echo, silent, special, options)


def read_prompts(value: str | list[Any], name: str) -> tuple[Prompt, ...]:
    """`name`: of the field. Raises BadField."""
    if isinstance(value, str):
        return (value,)
    if not value:
        raise refused(name, value, f"{_PROMPTS}, and not empty")
    if len(value) > MAX_PROMPT_TOKENS:
        raise refused(name, value, f"{_PROMPTS}, with at most {MAX_PROMPT_TOKENS} entries")
    if _are_tokens(value):
        return (tuple(value),)
    if len(value) > MAX_PROMPTS:
        raise BadField(f"{name} has {len(value)} entries; {MAX_PROMPTS} are allowed", name)
    return tuple(_prompt(f"{name}[{at}]", one) for at, one in enumerate(value))


def _prompt(path: str, value: Any) -> Prompt:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and _are_tokens(value):
        return tuple(value)
    raise refused(path, value, f"part of {_PROMPTS}")


def _are_tokens(value: list[Any]) -> bool:
    return all(type(one) is int and 0 <= one < MAX_TOKENS for one in value)
