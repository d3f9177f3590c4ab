"""What chat and text completions have in common: how an answer is to be made. Pure.

What the answer begins with stands in `server.openai.bodies.chat` and
`server.openai.bodies.completions`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from msgspec import Meta
from msgspec.structs import replace as replace_fields

from backends.llm.sampling.params import MAX_BIASED, SamplingParams
from server.openai.bodies.request_fields import (
    NotOffered,
    OnlyFalse,
    OnlyTrue,
    OpenAIBody,
    not_offered,
    refuse_flags,
    refused,
    wanted,
)
from server.openai.bodies.response_grammar import (
    Choices,
    GrammarText,
    JsonSchema,
    ResponseFormat,
    ResponseGrammar,
    StructuredOutputs,
    read_shape,
)
from server.rest.openai_errors import BadField

MAX_ANSWERS = 128
MAX_LOGPROBS = 20
MAX_STOPS, MAX_STOP_CHARACTERS = 32, 1024
MAX_TOKENS = 1 << 31
_INT64 = 1 << 63
SAMPLING_NAMES = (
    "temperature",
    "top_p",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "top_k",
)

_STOP = f"a string, or a list of at most {MAX_STOPS}, each of 1 to {MAX_STOP_CHARACTERS} characters"
_BIAS = f"an object of at most {MAX_BIASED} tokens, each with a number"

Fraction = Annotated[float, Meta(ge=0.0, le=1.0)]
Penalty = Annotated[float, Meta(ge=-100.0, le=100.0)]
TokenCount = Annotated[int, Meta(ge=0, le=MAX_TOKENS)]
LogprobCount = Annotated[int, Meta(ge=0, le=MAX_LOGPROBS)]
AnswerCount = Annotated[int, Meta(ge=1, le=MAX_ANSWERS)]
ModelName = Annotated[str, Meta(min_length=1, description="A model, MODEL@ALIAS, or a route.")]
StopText = Annotated[str, Meta(min_length=1, max_length=MAX_STOP_CHARACTERS)]
StopTexts = Annotated[list[StopText], Meta(max_length=MAX_STOPS)]
StopTokens = Annotated[
    list[TokenCount],
    Meta(max_length=MAX_BIASED, extra={"wanted": f"a list of at most {MAX_BIASED} tokens"}),
]
LogitBias = Annotated[
    dict[str, Any],
    Meta(
        max_length=MAX_BIASED,
        extra={"wanted": _BIAS},
        extra_json_schema={
            "propertyNames": {"pattern": "^[0-9]{1,9}$"},
            "additionalProperties": {"type": "number", "minimum": -100, "maximum": 100},
        },
    ),
]
Empty = Annotated[list[Any], Meta(max_length=0)]


class StreamOptions(OpenAIBody, frozen=True):
    """What a stream tells of the counts of tokens: at its end, or with every chunk."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None
    include_obfuscation: OnlyFalse = None


class GenerationBody(OpenAIBody, frozen=True):
    """The members of a body that chat and text completions share."""

    model: ModelName
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: AnswerCount | None = None
    temperature: Annotated[float, Meta(ge=0.0, le=100.0)] | None = None
    top_p: Fraction | None = None
    min_p: Fraction | None = None
    top_k: Annotated[int, Meta(ge=-1, le=MAX_TOKENS)] | None = None
    repetition_penalty: Annotated[float, Meta(ge=0.01, le=100.0)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    logit_bias: LogitBias | None = None
    min_tokens: TokenCount | None = None
    stop: Annotated[StopText | StopTexts, wanted(_STOP, entire=True)] | None = None
    stop_token_ids: StopTokens | None = None
    ignore_eos: bool | None = None
    seed: Annotated[int, Meta(ge=-_INT64, le=_INT64 - 1)] | None = None
    skip_special_tokens: bool | None = None
    add_special_tokens: bool | None = None
    priority: Annotated[int, Meta(ge=-(1 << 31), le=(1 << 31) - 1)] | None = None
    prompt_logprobs: LogprobCount | None = None
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: JsonSchema | None = None
    guided_regex: GrammarText | None = None
    guided_choice: Choices | None = None
    guided_grammar: GrammarText | None = None

    # Bookkeeping of the caller's; none of it changes an answer. A route's unit may be `user`.
    user: Any = None
    safety_identifier: Any = None
    prompt_cache_key: Any = None
    prompt_cache_retention: Any = None
    prompt_cache_options: Any = None
    metadata: Any = None

    # Fields of OpenAI's and vLLM's that are understood, as they ask for nothing.
    store: OnlyFalse = None
    service_tier: Annotated[Literal["auto", "default"], not_offered()] | None = None
    moderation: NotOffered = None
    use_beam_search: OnlyFalse = None
    length_penalty: Annotated[float, Meta(ge=1.0, le=1.0), not_offered()] | None = None
    early_stopping: OnlyFalse = None
    include_stop_str_in_output: OnlyFalse = None
    spaces_between_special_tokens: OnlyTrue = None
    bad_words: Annotated[Empty, not_offered()] | None = None
    allowed_token_ids: NotOffered = None
    logits_processors: Annotated[Empty, not_offered()] | None = None
    truncate_prompt_tokens: NotOffered = None
    return_tokens_as_token_ids: OnlyFalse = None
    return_token_ids: OnlyFalse = None
    cache_salt: NotOffered = None
    kv_transfer_params: NotOffered = None
    vllm_xargs: Annotated[dict[str, Any], Meta(max_length=0), not_offered()] | None = None
    request_id: NotOffered = None
    guided_decoding_backend: NotOffered = None
    guided_whitespace_pattern: NotOffered = None


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
    body: GenerationBody, max_tokens: int | None, logprobs: int | None
) -> GenerationOptions:
    """All but what one endpoint has of its own. Raises BadField."""
    stream = body.stream is True
    usage, running_usage = _stream_options(body.stream_options, stream)
    if stream and body.prompt_logprobs is not None:
        raise BadField("prompt_logprobs are not streamed; set stream to false", "prompt_logprobs")
    min_tokens = body.min_tokens or 0
    if max_tokens is not None and min_tokens > max_tokens:
        raise BadField(
            f"min_tokens is {min_tokens}, more than the {max_tokens} of max_tokens", "min_tokens"
        )
    sampling, given = _sampling(body, logprobs)
    return GenerationOptions(
        count=body.n or 1,
        stream=stream,
        usage=usage,
        running_usage=running_usage,
        sampling=sampling,
        max_tokens=max_tokens,
        min_tokens=min_tokens,
        stop=_stops(body.stop),
        stop_ids=tuple(body.stop_token_ids or ()),
        ignore_end=body.ignore_eos is True,
        seed=body.seed,
        skip_special=body.skip_special_tokens is not False,
        priority=body.priority or 0,
        prompt_logprobs=body.prompt_logprobs,
        shape=read_shape(
            body.response_format,
            {
                "guided_json": body.guided_json,
                "guided_regex": body.guided_regex,
                "guided_choice": body.guided_choice,
                "guided_grammar": body.guided_grammar,
            },
            body.structured_outputs,
        ),
        given=given,
    )


def _stream_options(options: StreamOptions | None, stream: bool) -> tuple[bool, bool]:
    if options is None:
        return False, False
    if not stream:
        raise BadField("stream_options is only allowed when stream is true", "stream_options")
    refuse_flags(options, "stream_options")
    usage = options.include_usage is True
    return usage, usage and options.continuous_usage_stats is True


def _sampling(body: GenerationBody, logprobs: int | None) -> tuple[SamplingParams, frozenset[str]]:
    """And the names of the fields that are given."""
    given: dict[str, Any] = {
        name: one for name in SAMPLING_NAMES if (one := getattr(body, name)) is not None
    }
    if "top_k" in given:
        given["top_k"] = max(given["top_k"], 0)
    bias = () if body.logit_bias is None else _bias(body.logit_bias)
    try:
        params = SamplingParams(**given, logit_bias=bias, logprobs=logprobs)
        return params, frozenset(given)
    except ValueError as error:  # it names the field first
        raise BadField(str(error), str(error).split(" ", 1)[0]) from None


def _bias(value: Mapping[str, Any]) -> tuple[tuple[int, float], ...]:
    name = "logit_bias"
    found = []
    for token, addend in value.items():
        if not (token.isascii() and token.isdigit() and len(token) < 10):
            raise refused(name, token, "an object whose keys are the numbers of tokens")
        is_number = isinstance(addend, int | float) and not isinstance(addend, bool)
        if not is_number or not -100 <= addend <= 100:
            raise refused(f"{name}.{token}", addend, "a number from -100 to 100")
        found.append((int(token), float(addend)))
    return tuple(found)


def _stops(value: str | list[str] | None) -> tuple[str, ...]:
    if value is None:
        return ()
    return tuple(value) if isinstance(value, list) else (value,)
