"""A text completion as it is asked for: prompts as text or tokens, and how to answer. Pure."""

from dataclasses import dataclass
from typing import Any

from server.openai.options import (
    MAX_ANSWERS,
    MAX_LOGPROBS,
    MAX_TOKENS,
    GenerationOptions,
    read_options,
)
from server.openai.request_fields import RequestFields
from server.rest.openai_errors import BadField

Prompt = str | tuple[int, ...]

MAX_PROMPTS, MAX_PROMPT_TOKENS = 2048, 1 << 20
DEFAULT_TOKENS = 16
"""What OpenAI answers where `max_tokens` is not given."""


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """`echo`: the prompt is repeated before the answer. `silent`: nothing but the prompt is wanted
    back (`max_tokens` 0). `special`: the tokeniser adds its own tokens around a text."""

    prompts: tuple[Prompt, ...]
    echo: bool
    silent: bool
    special: bool
    options: GenerationOptions


def read_completion(fields: RequestFields) -> CompletionRequest:
    """Raises BadField."""
    fields.pass_over(("model",))
    prompts = read_prompts(fields, "prompt")
    echo, special = fields.flag("echo"), fields.flag("add_special_tokens", True)
    fields.only("suffix", "")
    fields.only("prompt_embeds")
    max_tokens = fields.whole("max_tokens", 0, MAX_TOKENS)
    silent = max_tokens == 0
    if silent and not echo:
        raise BadField("max_tokens is 0, which leaves nothing to say without echo", "max_tokens")
    best_of = fields.whole("best_of", 1, MAX_ANSWERS)
    limit = 1 if silent else DEFAULT_TOKENS if max_tokens is None else max_tokens
    options = read_options(fields, limit, fields.whole("logprobs", 0, MAX_LOGPROBS))
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
    fields.finish()
    return CompletionRequest(prompts, echo, silent, special, options)


def read_prompts(fields: RequestFields, name: str) -> tuple[Prompt, ...]:
    """One text or several, one list of tokens or several."""
    value = fields.needed(name)
    if isinstance(value, str):
        return (value,)
    wanted = "a string, a list of strings, a list of tokens, or a list of lists of tokens"
    if not isinstance(value, list) or not value:
        raise fields.refused(name, value, f"{wanted}, and not empty")
    if len(value) > MAX_PROMPT_TOKENS:
        raise fields.refused(name, value, f"{wanted}, with at most {MAX_PROMPT_TOKENS} entries")
    if _are_tokens(value):
        return (tuple(value),)
    if len(value) > MAX_PROMPTS:
        path = fields.path(name)
        raise BadField(f"{path} has {len(value)} entries; {MAX_PROMPTS} are allowed", path)
    return tuple(_prompt(fields, f"{name}[{at}]", one, wanted) for at, one in enumerate(value))


def _prompt(fields: RequestFields, name: str, value: Any, wanted: str) -> Prompt:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and _are_tokens(value):
        return tuple(value)
    raise fields.refused(name, value, f"part of {wanted}")


def _are_tokens(value: list[Any]) -> bool:
    return all(type(one) is int and 0 <= one < MAX_TOKENS for one in value)
