"""A language model asked in KServe's way: tensors and parameters → a prompt and how to go on.

Names and meanings as in Triton's vLLM backend: `text_input`, `stream`, `sampling_parameters` (JSON
as text), `exclude_input_in_output`; the same sampling parameters may stand among the request's own.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, NoReturn

from backends.llm.backend import EXCLUDE, SAMPLING, STREAM, TEXT_INPUT
from backends.llm.grammar.spec import GrammarSpec
from backends.llm.sampling.params import SamplingParams
from schedulers.llm.errors import SenselessRequest
from schedulers.llm.generation import GenerateRequest
from schedulers.request import InferRequest

DEFAULT_MAX_TOKENS = 16
"""As vLLM's SamplingParams have it."""
MOST_STOPS = 64
_INT64 = 1 << 63
NO_DEFAULTS: Mapping[str, Any] = {}
GRAMMARS = ("guided_json", "guided_regex", "guided_choice")


@dataclass(frozen=True, slots=True)
class TextInputRequest:
    """`streams`: a response for each piece of text, else one with all of it. `prepends`: the prompt
    stands before the answer. `facts`: fields of the GenerateRequest, `sampling` of its params."""

    prompt: str
    streams: bool
    prepends: bool
    facts: Mapping[str, Any]
    sampling: SamplingParams

    def request(self, id: str, tokens: tuple[int, ...]) -> GenerateRequest:
        return GenerateRequest(id, tokens, sampling=self.sampling, **self.facts)


def read_text_input(
    request: InferRequest, defaults: Mapping[str, Any] = NO_DEFAULTS
) -> TextInputRequest:
    """What is asked; `defaults` of the model's sampling hold where it does not say.

    Raises SenselessRequest naming the input or parameter that is wrong, and what is taken.
    """
    streams = _flag(request, STREAM, False)
    prepends = not _flag(request, EXCLUDE, streams)
    if streams and prepends:
        raise SenselessRequest("When streaming, `exclude_input_in_output` = False is not allowed.")
    given = _given(request)
    facts = {name: _FACTS[name](name, value) for name, value in given.items() if name in _FACTS}
    sampling = {
        name: _SAMPLING[name](name, value) for name, value in given.items() if name in _SAMPLING
    }
    sampling = {name: one for name, one in defaults.items() if name in _SAMPLING} | sampling
    facts.setdefault("max_tokens", DEFAULT_MAX_TOKENS)
    if sum(name in GRAMMARS for name in facts) > 1:
        raise SenselessRequest(f"give one of {', '.join(GRAMMARS)}, not several")
    renamed = {_RENAMED.get(name, name): value for name, value in facts.items()}
    try:
        params = SamplingParams(**sampling)
    except ValueError as error:
        raise SenselessRequest(str(error)) from None
    return TextInputRequest(_text(request, TEXT_INPUT), streams, prepends, renamed, params)


def read_texts(request: InferRequest, name: str) -> tuple[str, ...]:
    """The elements of a BYTES input. Raises SenselessRequest unless they are UTF-8, and some."""
    values = request.inputs[name].reshape(-1)
    if not len(values):
        raise SenselessRequest(f"{name} has no element; give at least one text")
    try:
        return tuple(one if isinstance(one, str) else bytes(one).decode() for one in values)
    except UnicodeDecodeError as error:
        raise SenselessRequest(f"{name} is not UTF-8: {error.reason} at {error.start}") from None


def _given(request: InferRequest) -> dict[str, Any]:
    """The sampling parameters; those of the input win over those of the request."""
    given = {name: value for name, value in request.parameters.items() if name in NAMES}
    for name in request.parameters:
        if name not in NAMES and (meant := get_close_matches(name, NAMES, 1, 0.85)):
            raise SenselessRequest(f"there is no parameter '{name:.80}'; '{meant[0]}' may be meant")
    if SAMPLING not in request.inputs:
        return given
    try:
        read = json.loads(_text(request, SAMPLING) or "{}")
    except (ValueError, RecursionError) as error:
        raise SenselessRequest(f"{SAMPLING} is no JSON: {error}") from None
    if not isinstance(read, dict):
        raise SenselessRequest(f"{SAMPLING} must be a JSON object")
    for name in read:
        if name not in NAMES:
            raise SenselessRequest(
                f"{SAMPLING} has no '{name:.80}'; it has {', '.join(sorted(NAMES))}"
            )
    return {**given, **{name: value for name, value in read.items() if value is not None}}


def _flag(request: InferRequest, name: str, default: bool) -> bool:
    array = request.inputs.get(name)
    return default if array is None else bool(array.reshape(-1)[0])


def _text(request: InferRequest, name: str) -> str:
    return read_texts(request, name)[0]


def _number(name: str, value: Any) -> float:
    """A number; also as text, which vLLM's clients often write."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        _wrong(name, value, "a number")
    try:
        return float(value)
    except (ValueError, OverflowError):
        _wrong(name, value, "a number")


def _whole(name: str, value: Any) -> int:
    number = value if isinstance(value, int) and not isinstance(value, bool) else None
    if number is None and (given := _number(name, value)).is_integer():
        number = int(given)
    if number is None or not -_INT64 <= number < _INT64:
        _wrong(name, value, "a whole number of 64 bits")
    return number


def _truth(name: str, value: Any) -> bool:
    text = str(value).lower()
    if text not in ("true", "false"):
        _wrong(name, value, "true or false")
    return text == "true"


def _stops(name: str, value: Any) -> tuple[str, ...]:
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, list) or not all(isinstance(one, str) and one for one in listed):
        _wrong(name, value, "a text or a list of texts, none of them empty")
    if len(listed) > MOST_STOPS:
        _wrong(name, len(listed), f"at most {MOST_STOPS} texts")
    return tuple(listed)


def _ids(name: str, value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or len(value) > MOST_STOPS:
        _wrong(name, value, f"a list of at most {MOST_STOPS} tokens")
    return tuple(_whole(name, one) for one in value)


def _biases(name: str, value: Any) -> tuple[tuple[int, float], ...]:
    if not isinstance(value, dict):
        _wrong(name, value, "an object of token and number")
    return tuple((_whole(name, token), _number(name, bias)) for token, bias in value.items())


def _schema(name: str, value: Any) -> GrammarSpec:
    return GrammarSpec("json_schema", value if isinstance(value, str) else json.dumps(value))


def _regex(name: str, value: Any) -> GrammarSpec:
    if not isinstance(value, str):
        _wrong(name, value, "a text")
    return GrammarSpec("regex", value)


def _choice(name: str, value: Any) -> GrammarSpec:
    return GrammarSpec("choice", json.dumps(_stops(name, value)))


def _wrong(name: str, value: Any, wanted: str) -> NoReturn:
    raise SenselessRequest(f"{name} is {value!r:.80}; it must be {wanted}")


_SAMPLING: dict[str, Callable[[str, Any], Any]] = {
    "temperature": _number,
    "top_k": lambda name, value: max(_whole(name, value), 0),  # vLLM's -1 is our 0
    "top_p": _number,
    "min_p": _number,
    "repetition_penalty": _number,
    "presence_penalty": _number,
    "frequency_penalty": _number,
    "logit_bias": _biases,
}
_FACTS: dict[str, Callable[[str, Any], Any]] = {
    "max_tokens": _whole,
    "min_tokens": _whole,
    "stop": _stops,
    "stop_token_ids": _ids,
    "ignore_eos": _truth,
    "seed": _whole,
    "skip_special_tokens": _truth,
    "guided_json": _schema,
    "guided_regex": _regex,
    "guided_choice": _choice,
}
_RENAMED = {
    "stop_token_ids": "stop_ids",
    "ignore_eos": "ignore_end",
    "skip_special_tokens": "skip_special",
    **dict.fromkeys(GRAMMARS, "grammar"),
}
NAMES = frozenset((*_SAMPLING, *_FACTS))
