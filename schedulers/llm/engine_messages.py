"""What a gateway and an engine process say to each other: small typed messages, msgpack.

Once it is loaded (`backends.host.messages`), the engine says `EngineOpened`; then a `StepReport`
after every step, and what answers the gateway. That one says `Submit`, `Cancel`, `Embed`, `Shrink`,
`Grow`,
`Encode` and `Decode` at any time, and `Close` at the end, which the engine answers by exiting.
"""

from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgpack

from backends.llm.grammar.spec import GrammarSpec
from backends.llm.sampling.params import SamplingParams
from backends.llm.sampling.token_logprobs import TokenLogprobs
from schedulers.llm.generation import GenerateRequest, GenerationOutput
from schedulers.llm.request import Finish


class EngineOpened(NamedTuple):
    """`ops`: what computes; bytes as granted; `dimensions` of an embedding, 0 for none;
    `token_ends`, `token_letters`: a `backends.llm.tokens.token_table`; `specials`, `markers`:
    texts of control tokens, as `backends.llm.chat.control_text` has them."""

    ops: str
    context: int
    blocks: int
    block_tokens: int
    weights_bytes: int
    workspace_bytes: int
    block_bytes: int
    dimensions: int
    token_ends: bytes
    token_letters: bytes
    specials: tuple[str, ...] = ()
    markers: tuple[str, ...] = ()


class Submit(NamedTuple):
    """Take these requests in; packed by `pack_request`."""

    requests: tuple[Any, ...]


class Cancel(NamedTuple):
    """Nobody waits for these any more."""

    ids: tuple[str, ...]


class Embed(NamedTuple):
    """Embed lists of tokens, packed as array("I")."""

    id: str
    lists: tuple[bytes, ...]


class Shrink(NamedTuple):
    """Give back the memory of about so many bytes of blocks that are only cached, or empty."""

    bytes: int


class Grow(NamedTuple):
    """Use at most so many bytes of blocks again that were given back."""

    bytes: int


class ResizeReply(NamedTuple):
    """So many bytes were given back, or taken again: the answer to each Shrink and Grow."""

    bytes: int


class Encode(NamedTuple):
    """Make tokens of texts, without waiting for a step; the rest as in `Tokeniser.encode`."""

    id: int
    texts: tuple[str, ...]
    special: bool
    marked: bool = False


class Decode(NamedTuple):
    """Make a text of tokens, packed as array("I"), without waiting for a step."""

    id: int
    tokens: bytes
    skip_special: bool


class TokeniserReply(NamedTuple):
    """What became of one `Encode` or `Decode`: packed tokens of each text, or the text, or an
    `error`."""

    id: int
    lists: tuple[bytes, ...]
    text: str
    error: str


class Close(NamedTuple):
    """Give everything back and exit."""


class StepReport(NamedTuple):
    """A step: when it began (time.monotonic_ns, which processes of a machine share), the requests
    that were computed for the first time in it, packed outputs, and now and then the counts.
    """

    began_ns: int
    started: tuple[str, ...]
    outputs: tuple[Any, ...]
    counts: "EngineStats | None"


class RequestRefused(NamedTuple):
    """A request was not taken in: `kind` is "invalid", "long" or "busy"."""

    id: str
    kind: str
    text: str


class EmbedReply(NamedTuple):
    """What became of one `Embed`: float32 [lists, dimensions] as bytes, or an `error`."""

    id: str
    data: bytes
    error: str


class EngineStats(NamedTuple):
    """What an engine has done since it started, and what is in it now."""

    steps: int
    prompt_tokens: int
    generated_tokens: int
    prefix_hit_tokens: int
    preemptions: int
    running: int
    waiting: int
    waiting_tokens: int
    blocks_in_use: int
    blocks_cached: int
    blocks_empty: int


Message = (
    EngineOpened
    | Submit
    | Cancel
    | Embed
    | Shrink
    | Grow
    | Close
    | StepReport
    | RequestRefused
    | EmbedReply
    | ResizeReply
    | Encode
    | Decode
    | TokeniserReply
)

_KINDS: tuple[type[Message], ...] = (
    EngineOpened,
    Submit,
    Cancel,
    Embed,
    Shrink,
    Grow,
    Close,
    StepReport,
    RequestRefused,
    EmbedReply,
    ResizeReply,
    Encode,
    Decode,
    TokeniserReply,
)
_TAGS: dict[type[Message], int] = {kind: tag for tag, kind in enumerate(_KINDS)}


def encode(message: Message) -> bytes:
    """The message as bytes; lone surrogates in client text survive."""
    packed: bytes = msgpack.packb((_TAGS[type(message)], *message), unicode_errors="surrogatepass")
    return packed


def decode(payload: bytes) -> Message:
    """The message in `payload`. Raises ValueError, TypeError or IndexError for anything else."""
    tag, *fields = msgpack.unpackb(payload, use_list=False, unicode_errors="surrogatepass")
    kind: Any = _KINDS[tag]
    if kind is StepReport and fields[3] is not None:
        fields[3] = EngineStats(*fields[3])
    message: Message = kind(*fields)
    return message


def pack_request(request: GenerateRequest) -> tuple[Any, ...]:
    sampling, grammar = request.sampling, request.grammar
    return (
        request.id, array("I", request.prompt).tobytes(), request.max_tokens,
        (
            sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p,
            sampling.repetition_penalty, sampling.presence_penalty, sampling.frequency_penalty,
            sampling.logit_bias, sampling.logprobs,
        ),
        request.stop, request.stop_ids, request.min_tokens, request.ignore_end,
        None if request.seed is None else str(request.seed), request.prompt_logprobs,
        request.skip_special, request.principal, request.priority, request.deadline_s,
        request.salt, None if grammar is None else (grammar.kind, grammar.text), request.shown,
    )  # fmt: skip


def unpack_request(packed: tuple[Any, ...]) -> GenerateRequest:
    """Raises ValueError for sampling parameters that are out of their ranges."""
    (id, prompt, max_tokens, sampling, stop, stop_ids, min_tokens, ignore_end, seed, scores,
     skip_special, principal, priority, deadline_s, salt, grammar, shown) = packed  # fmt: skip
    return GenerateRequest(
        id, unpack_tokens(prompt), max_tokens, SamplingParams(*sampling), stop, stop_ids,
        min_tokens, ignore_end, None if seed is None else int(seed), scores, skip_special,
        principal, priority, deadline_s, salt, None if grammar is None else GrammarSpec(*grammar),
        shown,
    )  # fmt: skip


def pack_tokens(tokens: Sequence[int]) -> bytes:
    return array("I", tokens).tobytes()


def unpack_tokens(packed: bytes) -> tuple[int, ...]:
    """Raises TypeError and ValueError for what is no packed tokens."""
    tokens = array("I")
    tokens.frombytes(packed)
    return tuple(tokens)


def pack_output(output: GenerationOutput) -> tuple[Any, ...]:
    """As short as it usually is: id, token and text alone."""
    plain = (output.id, output.token, output.text)
    rest = (
        _pack_scored(output.scored),
        None if output.finish is None else output.finish.value,
        output.stopped_by,
        output.message,
        tuple(map(_pack_scored, output.prompt)),
        output.cached_tokens,
    )
    return plain if rest == (None, None, None, "", (), 0) else (*plain, *rest)


def unpack_output(packed: tuple[Any, ...]) -> GenerationOutput:
    if len(packed) == 3:
        return GenerationOutput(*packed)
    id, token, text, scored, finish, stopped_by, message, prompt, cached = packed
    return GenerationOutput(
        id,
        token,
        text,
        None if scored is None else TokenLogprobs(*scored),
        None if finish is None else Finish(finish),
        stopped_by,
        message,
        tuple(TokenLogprobs(*one) for one in prompt),
        cached,
    )


def _pack_scored(scored: TokenLogprobs | None) -> tuple[Any, ...] | None:
    return None if scored is None else (scored.logprob, scored.rank, scored.likeliest)
