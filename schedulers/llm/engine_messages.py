"""What a gateway and an engine process send each other: one Struct per message.

Once it is loaded (`backends.process.messages`), the engine sends `EngineOpened`; then a
`StepReport` after every step, and what answers the gateway. That one sends `Submit`, `Cancel`,
`Embed`, `Shrink`, `Grow`, `Encode` and `Decode` at any time, and `Close` at the end, which the
engine answers by exiting. `backends.process.duplex` encodes.
"""

from array import array
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from backends.llm.load_phases import LoadPhase
from schedulers.llm.generation import GenerateRequest, GenerationOutput


class EngineOpened(Struct, frozen=True, array_like=True, tag="opened"):
    """`ops`: what computes; bytes as granted; `dimensions` of an embedding, 0 for none;
    `token_ends`, `token_letters`: a `backends.llm.tokens.token_table`; `specials`, `markers`:
    texts of control tokens, as `backends.llm.chat.control_text` has them; `phases`: of its load,
    the first from the start of its process."""

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
    phases: tuple[LoadPhase, ...] = ()


class Submit(Struct, frozen=True, array_like=True, tag="submit"):
    """Take these requests in."""

    requests: tuple[GenerateRequest, ...]


class Cancel(Struct, frozen=True, array_like=True, tag="cancel"):
    """Nobody waits for these any more."""

    ids: tuple[str, ...]


class Embed(Struct, frozen=True, array_like=True, tag="embed"):
    """Embed lists of tokens, packed as array("I")."""

    id: str
    lists: tuple[bytes, ...]


class Shrink(Struct, frozen=True, array_like=True, tag="shrink"):
    """Give back the memory of about so many bytes of blocks that are only cached, or empty."""

    bytes: int


class Grow(Struct, frozen=True, array_like=True, tag="grow"):
    """Use at most so many bytes of blocks again that were given back."""

    bytes: int


class ResizeReply(Struct, frozen=True, array_like=True, tag="resized"):
    """So many bytes were given back, or taken again: the answer to each Shrink and Grow."""

    bytes: int


class Encode(Struct, frozen=True, array_like=True, tag="encode"):
    """Make tokens of texts, without waiting for a step; the rest as in `Tokeniser.encode`."""

    id: int
    texts: tuple[str, ...]
    special: bool
    marked: bool = False


class Decode(Struct, frozen=True, array_like=True, tag="decode"):
    """Make a text of tokens, packed as array("I"), without waiting for a step."""

    id: int
    tokens: bytes
    skip_special: bool


class TokeniserReply(Struct, frozen=True, array_like=True, tag="tokenised"):
    """What became of one `Encode` or `Decode`: packed tokens of each text, or the text, or an
    `error`."""

    id: int
    lists: tuple[bytes, ...]
    text: str
    error: str


class Close(Struct, frozen=True, array_like=True, tag="close"):
    """Give everything back and exit."""


class StepReport(Struct, frozen=True, array_like=True, tag="step"):
    """A step: when it began (time.monotonic_ns, which processes of a machine share), the requests
    that were computed for the first time in it, outputs, and now and then the counts.
    """

    began_ns: int
    started: tuple[str, ...]
    outputs: list[GenerationOutput]
    counts: "EngineStats | None"


class RequestRefused(Struct, frozen=True, array_like=True, tag="refused"):
    """A request was not taken in: `kind` is "invalid", "long" or "busy"."""

    id: str
    kind: str
    text: str


class EmbedReply(Struct, frozen=True, array_like=True, tag="embedded"):
    """What became of one `Embed`: float32 [lists, dimensions] as bytes, or an `error`."""

    id: str
    data: bytes
    error: str


class EngineStats(Struct, frozen=True, array_like=True):
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

_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)


def decode(payload: bytes) -> Message:
    """The message in `payload`. Raises ValueError for anything else, and for sampling parameters
    that are out of their ranges."""
    return _decoder.decode(payload)


def pack_tokens(tokens: Sequence[int]) -> bytes:
    return array("I", tokens).tobytes()


def unpack_tokens(packed: bytes) -> tuple[int, ...]:
    """Raises TypeError and ValueError for what is no packed tokens."""
    tokens = array("I")
    tokens.frombytes(packed)
    return tuple(tokens)
