"""What chat and text completions have in common: how an answer is to be made. Pure.

A body's members are read here but for what the answer begins with, which `server.openai.chat` and
`server.openai.completions` read.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from msgspec.structs import replace as replace_fields

from backends.llm.sampling.params import MAX_BIASED, SamplingParams
from server.openai.request_fields import RequestFields
from server.openai.response_grammar import ResponseGrammar, read_shape
from server.rest.openai_errors import BadField

MAX_ANSWERS = 128
MAX_LOGPROBS = 20
MAX_STOPS, MAX_STOP_CHARACTERS = 32, 1024
MAX_TOKENS = 1 << 31
_INT64 = 1 << 63
_NUMBERS = {
    "temperature": (0.0, 100.0),
    "top_p": (0.0, 1.0),
    "min_p": (0.0, 1.0),
    "repetition_penalty": (0.01, 100.0),
    "presence_penalty": (-100.0, 100.0),
    "frequency_penalty": (-100.0, 100.0),
}
SAMPLING_NAMES = frozenset((*_NUMBERS, "top_k"))

_SAID_ELSEWHERE = (
    "user",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "prompt_cache_options",
    "metadata",
)
"""Bookkeeping of the caller's; none of it changes an answer. A route's unit may be `user`."""

_NOT_OFFERED: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("store", (False,)),
    ("service_tier", ("auto", "default")),
    ("moderation", ()),
    ("use_beam_search", (False,)),
    ("length_penalty", (1, 1.0)),
    ("early_stopping", (False,)),
    ("include_stop_str_in_output", (False,)),
    ("spaces_between_special_tokens", (True,)),
    ("bad_words", ([],)),
    ("allowed_token_ids", ()),
    ("logits_processors", ([],)),
    ("truncate_prompt_tokens", ()),
    ("return_tokens_as_token_ids", (False,)),
    ("return_token_ids", (False,)),
    ("cache_salt", ()),
    ("kv_transfer_params", ()),
    ("vllm_xargs", ({},)),
    ("request_id", ()),
)
"""Fields of OpenAI's and vLLM's that are understood, with the values that ask for nothing."""


@dataclass(frozen=True, slots=True)
class GenerationOptions:
    """`count`: answers to each prompt. `usage`: the stream ends with the counts of tokens;
    `running_usage`: every chunk has them. `max_tokens`: None for `default_tokens`, the model's own
    limit, or else what the context leaves. `shown`: special tokens that `skip_special` does not
    leave out. `given`: the sampling fields that the request names."""

    count: int
    stream: bool
    usage: bool
    running_usage: bool
    sampling: SamplingParams
    max_tokens: int | None
    min_tokens: int
    stop: tuple[str, ...]
    stop_ids: tuple[int, ...]
    ignore_end: bool
    seed: int | None
    skip_special: bool
    priority: int
    prompt_logprobs: int | None
    shape: ResponseGrammar | None
    shown: tuple[str, ...] = ()
    given: frozenset[str] = frozenset()
    default_tokens: int | None = None

    def with_defaults(self, defaults: Mapping[str, float]) -> "GenerationOptions":
        """The same where what the request does not say is as the model has it."""
        unsaid = {
            name: one
            for name, one in defaults.items()
            if name in SAMPLING_NAMES and name not in self.given
        }
        tokens = defaults.get("max_tokens")
        return replace(
            self,
            sampling=replace_fields(self.sampling, **unsaid),
            default_tokens=None if tokens is None else max(int(tokens), self.min_tokens),
        )

    def tokens_for(self, room: int) -> int:
        """Most tokens of an answer, where the context leaves `room`."""
        return self.max_tokens or min(room, self.default_tokens or room)

    def seed_of(self, number: int) -> int | None:
        """Of the answer of this number: alike in every run, and no two alike in one."""
        return None if self.seed is None else self.seed + number


def read_options(
    fields: RequestFields, max_tokens: int | None, logprobs: int | None
) -> GenerationOptions:
    """Take all but the fields of one endpoint. Raises BadField."""
    fields.pass_over(_SAID_ELSEWHERE)
    for name, neutral in _NOT_OFFERED:
        fields.only(name, *neutral)
    stream = fields.flag("stream")
    usage, running_usage = _stream_options(fields, stream)
    prompt_logprobs = fields.whole("prompt_logprobs", 0, MAX_LOGPROBS)
    if stream and prompt_logprobs is not None:
        raise BadField("prompt_logprobs are not streamed; set stream to false", "prompt_logprobs")
    min_tokens = fields.whole("min_tokens", 0, MAX_TOKENS) or 0
    if max_tokens is not None and min_tokens > max_tokens:
        raise BadField(
            f"min_tokens is {min_tokens}, more than the {max_tokens} of max_tokens", "min_tokens"
        )
    sampling, given = _sampling(fields, logprobs)
    return GenerationOptions(
        count=fields.whole("n", 1, MAX_ANSWERS) or 1,
        stream=stream,
        usage=usage,
        running_usage=running_usage,
        sampling=sampling,
        max_tokens=max_tokens,
        min_tokens=min_tokens,
        stop=_stops(fields),
        stop_ids=_stop_ids(fields),
        ignore_end=fields.flag("ignore_eos"),
        seed=fields.whole("seed", -_INT64, _INT64 - 1),
        skip_special=fields.flag("skip_special_tokens", True),
        priority=fields.whole("priority", -(1 << 31), (1 << 31) - 1) or 0,
        prompt_logprobs=prompt_logprobs,
        shape=read_shape(fields),
        given=given,
    )


def _stream_options(fields: RequestFields, stream: bool) -> tuple[bool, bool]:
    options = fields.object("stream_options")
    if options is None:
        return False, False
    if not stream:
        raise BadField("stream_options is only allowed when stream is true", "stream_options")
    usage = options.flag("include_usage")
    running = options.flag("continuous_usage_stats")
    options.only("include_obfuscation", False)
    options.finish()
    return usage, usage and running


def _sampling(fields: RequestFields, logprobs: int | None) -> tuple[SamplingParams, frozenset[str]]:
    """And the names of the fields that are given."""
    read: dict[str, float | None] = {
        name: fields.optional_number(name, least, most) for name, (least, most) in _NUMBERS.items()
    }
    top_k = fields.whole("top_k", -1, MAX_TOKENS)
    read["top_k"] = None if top_k is None else max(top_k, 0)
    given: dict[str, Any] = {name: one for name, one in read.items() if one is not None}
    bias = _bias(fields)
    try:
        params = SamplingParams(**given, logit_bias=bias, logprobs=logprobs)
        return params, frozenset(given)
    except ValueError as error:  # it names the field first
        raise BadField(str(error), str(error).split(" ", 1)[0]) from None


def _bias(fields: RequestFields) -> tuple[tuple[int, float], ...]:
    name = "logit_bias"
    value = fields.take(name)
    if value is None:
        return ()
    if not isinstance(value, dict) or len(value) > MAX_BIASED:
        wanted = f"an object of at most {MAX_BIASED} tokens, each with a number"
        raise fields.refused(name, value, wanted)
    found = []
    for token, addend in value.items():
        if not (token.isascii() and token.isdigit() and len(token) < 10):
            raise fields.refused(name, token, "an object whose keys are the numbers of tokens")
        found.append((int(token), fields.number_in(f"{name}.{token}", addend, -100, 100)))
    return tuple(found)


def _stops(fields: RequestFields) -> tuple[str, ...]:
    value = fields.take("stop")
    if value is None:
        return ()
    stops = value if isinstance(value, list) else [value]
    good = all(isinstance(one, str) and 0 < len(one) <= MAX_STOP_CHARACTERS for one in stops)
    if not good or len(stops) > MAX_STOPS:
        wanted = (
            f"a string, or a list of at most {MAX_STOPS}, each of 1 to {MAX_STOP_CHARACTERS} "
            "characters"
        )
        raise fields.refused("stop", value, wanted)
    return tuple(stops)


def _stop_ids(fields: RequestFields) -> tuple[int, ...]:
    name = "stop_token_ids"
    value = fields.take(name)
    if value is None:
        return ()
    if not isinstance(value, list) or len(value) > MAX_BIASED:
        raise fields.refused(name, value, f"a list of at most {MAX_BIASED} tokens")
    return tuple(
        fields.whole_in(f"{name}[{at}]", one, 0, MAX_TOKENS) for at, one in enumerate(value)
    )
