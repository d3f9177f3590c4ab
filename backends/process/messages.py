"""What a server and a worker say to each other: one Struct per message, msgpack on the wire.

Server: `Load` once, then `Execute` again and again, `Finalize` at the end. Worker: `WorkerLoaded`
or
`WorkerLoadFailed`, then `BatchExecuted` or `BatchFailed` to each `Execute`; it answers `Finalize`
by exiting. The worker of a decoupled model sends `StreamPart` whenever the model has a response,
and is told by
`StreamRead` how the reader fares.
"""

from typing import Annotated, Any, TypeVar

import msgpack
import msgspec
from msgspec import Struct

from backends.process.layout import TensorBlock
from backends.seam import SequenceRows

_Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
"""Of nanoseconds or bytes, as a worker claims it."""


class Load(Struct, frozen=True, array_like=True, tag="load"):
    """Load this version on this device; paths as text, `config` a serialised ModelConfig."""

    name: str
    number: int
    folder: str
    path: str
    config: bytes
    digest: str
    kind: str
    device_index: int
    threads: int


class WorkerLoaded(Struct, frozen=True, array_like=True, tag="loaded"):
    """Loaded; `config` is the completed one, `cores` the core tokens an execution takes;
    `streams`: each `Execute` names a stream per member, and the answers are `StreamPart`.
    `checks_ready`: the model says itself whether it is ready, when it is asked."""

    config: bytes
    device: str
    cores: int
    streams: bool
    checks_ready: bool = False


class WorkerLoadFailed(Struct, frozen=True, array_like=True, tag="load_failed"):
    """Not loaded, and why, for the model's owner to read."""

    text: str


class RequestMetadata(Struct, frozen=True, array_like=True):
    """What a model may know of one request; `parameters` is JSON text, empty for none."""

    id: str
    correlation_id: int | str
    parameters: str
    requested_outputs: tuple[str, ...]
    timeout_us: int


class Execute(Struct, frozen=True, array_like=True, tag="execute"):
    """Run one batch; its tensors lie in the server's region, behind a byte per member that
    becomes 1 when the member's client has gone. `streams`: a number per member, or empty.
    `sequences`: of a model with `sequence_batching`."""

    rows: tuple[int, ...]
    batched: bool
    members: tuple[RequestMetadata, ...]
    blocks: tuple[TensorBlock, ...]
    streams: tuple[int, ...]
    sequences: SequenceRows | None = None


class BatchExecuted(Struct, frozen=True, array_like=True, tag="executed"):
    """One result per member: an error by index, or tensors in the worker's region; of a stream,
    only that the model has taken the batch in.

    `parameters`: JSON text by index, where there are any. `held`: user code still holds arrays
    that lie in the server's region. `state_bytes`: that the states of sequences take.
    """

    errors: dict[int, "WorkerError"]
    blocks: tuple[TensorBlock, ...]
    input_ns: _Count
    infer_ns: _Count
    output_ns: _Count
    parameters: dict[int, str]
    held: bool
    state_bytes: _Count = 0


class WorkerError(Struct, frozen=True, array_like=True):
    """An error: the name of its class in `backends.errors`, its text, and Triton's error code
    where the model chose one."""

    kind: str
    text: str
    code: str


class BatchFailed(Struct, frozen=True, array_like=True, tag="failed"):
    """The whole batch failed."""

    trouble: WorkerError
    held: bool


class StreamPart(Struct, frozen=True, array_like=True, tag="part"):
    """One part of a stream: an error, tensors, or (`empty`) nothing. The tensors lie in `data`,
    or in a region of their own that travels with the message."""

    stream: int
    last: bool
    empty: bool
    trouble: WorkerError | None
    blocks: tuple[TensorBlock, ...]
    data: bytes
    parameters: str


class StreamRead(Struct, frozen=True, array_like=True, tag="read"):
    """The reader of a stream has taken so many more parts, or has gone."""

    stream: int
    taken: int
    gone: bool


class Finalize(Struct, frozen=True, array_like=True, tag="finalize"):
    """Give everything back and exit."""


Message = (
    Load
    | WorkerLoaded
    | WorkerLoadFailed
    | Execute
    | BatchExecuted
    | BatchFailed
    | StreamPart
    | StreamRead
    | Finalize
)

_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)
_encoder = msgspec.msgpack.Encoder()


def encode(message: Struct) -> bytes:
    """Any Struct as bytes. Half of a surrogate pair, for which UTF-8 has no form, goes as U+FFFD:
    texts of errors may hold one."""
    try:
        return _encoder.encode(message)
    except UnicodeEncodeError:
        plain = msgspec.to_builtins(message, str_keys=False, builtin_types=(bytes,))
        return _encoder.encode(with_whole_text(plain))


def decode(payload: bytes) -> Message:
    """The message in `payload`. Raises ValueError for anything that is none, or has more parts than
    `MOST_PARTS`."""
    if len(payload) > _FEW_PARTS_BYTES:
        count_parts(payload)
    return _decoder.decode(payload)


def count_parts(payload: bytes) -> None:
    """Raise ValueError for a message of more than `MOST_PARTS` parts."""
    if len(payload) > _FEW_PARTS_BYTES:
        _count(payload)


def with_whole_text(value: Any) -> Any:
    """`value`, of plain Python types, with U+FFFD for every half of a surrogate pair."""
    match value:
        case str():
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        case list() | tuple():
            return [with_whole_text(one) for one in value]
        case dict():
            return {key: with_whole_text(one) for key, one in value.items()}
    return value


MOST_PARTS = 1 << 21
"""Values in a message, which all become objects: it is read with the GIL held, 10 million a second,
and a byte is enough for one."""
_FEW_PARTS_BYTES = MOST_PARTS // 32
"""A message of at most so many bytes need not be counted."""

_Parts = TypeVar("_Parts", tuple[Any, ...], dict[Any, Any])


def _count(payload: bytes) -> None:
    """Raises ValueError."""
    count, most = _ValueCounter().of, MOST_PARTS // 16
    msgpack.unpackb(
        payload,
        use_list=False,
        unicode_errors="surrogatepass",
        strict_map_key=False,
        list_hook=count,
        object_hook=count,
        max_array_len=most,
        max_map_len=most,
    )


class _ValueCounter:
    """Of values in arrays and maps, while a message is read."""

    def __init__(self) -> None:
        self._left = MOST_PARTS

    def of(self, parts: _Parts) -> _Parts:
        self._left -= len(parts) + 1
        if self._left < 0:
            raise ValueError(f"a message of more than {MOST_PARTS} parts")
        return parts
