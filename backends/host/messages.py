"""What a server and a worker say to each other: small typed messages, msgpack on the wire.

Server: `Load` once, then `Execute` again and again, `Finalize` at the end. Worker: `WorkerLoaded`
or
`WorkerLoadFailed`, then `BatchExecuted` or `BatchFailed` to each `Execute`; it answers `Finalize`
by exiting. The worker of a decoupled model sends `StreamPart` whenever the model has a response,
and is told by
`StreamRead` how the reader fares.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

import msgpack

from backends.host.layout import TensorBlock


class Load(NamedTuple):
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


class WorkerLoaded(NamedTuple):
    """Loaded; `config` is the completed one, `cores` the core tokens an execution takes;
    `streams`: each `Execute` names a stream per member, and the answers are `StreamPart`.
    `checks_ready`: the model says itself whether it is ready, when it is asked."""

    config: bytes
    device: str
    cores: int
    streams: bool
    checks_ready: bool = False


class WorkerLoadFailed(NamedTuple):
    """Not loaded, and why, for the model's owner to read."""

    text: str


class RequestMetadata(NamedTuple):
    """What a model may know of one request; `parameters` is JSON text, empty for none."""

    id: str
    correlation_id: int | str
    parameters: str
    wanted: tuple[str, ...]
    timeout_us: int


class Execute(NamedTuple):
    """Run one batch; its tensors lie in the server's region, behind a byte per member that
    becomes 1 when the member's client has gone. `streams`: a number per member, or empty."""

    rows: tuple[int, ...]
    batched: bool
    members: tuple[RequestMetadata, ...]
    blocks: tuple[TensorBlock, ...]
    streams: tuple[int, ...]


class BatchExecuted(NamedTuple):
    """One result per member: an error by index, or tensors in the worker's region; of a stream,
    only that the model has taken the batch in.

    `parameters`: JSON text by index, where there are any. `held`: user code still holds arrays
    that lie in the server's region.
    """

    errors: Mapping[int, "WorkerError"]
    blocks: tuple[TensorBlock, ...]
    input_ns: int
    infer_ns: int
    output_ns: int
    parameters: Mapping[int, str]
    held: bool


class WorkerError(NamedTuple):
    """An error: the name of its class in `backends.errors`, its text, and Triton's error code
    where the model chose one."""

    kind: str
    text: str
    code: str


class BatchFailed(NamedTuple):
    """The whole batch failed."""

    trouble: WorkerError
    held: bool


class StreamPart(NamedTuple):
    """One part of a stream: an error, tensors, or (`empty`) nothing. The tensors lie in `data`,
    or in a region of their own that travels with the message."""

    stream: int
    last: bool
    empty: bool
    trouble: WorkerError | None
    blocks: tuple[TensorBlock, ...]
    data: bytes
    parameters: str


class StreamRead(NamedTuple):
    """The reader of a stream has taken so many more parts, or has gone."""

    stream: int
    taken: int
    gone: bool


class Finalize(NamedTuple):
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

_KINDS: tuple[type[Message], ...] = (
    Load,
    WorkerLoaded,
    WorkerLoadFailed,
    Execute,
    BatchExecuted,
    BatchFailed,
    StreamPart,
    StreamRead,
    Finalize,
)
_TAGS: dict[type[Message], int] = {kind: tag for tag, kind in enumerate(_KINDS)}


def encode(message: Message) -> bytes:
    """The message as bytes; lone surrogates in client text survive."""
    packed: bytes = msgpack.packb((_TAGS[type(message)], *message), unicode_errors="surrogatepass")
    return packed


def decode(payload: bytes) -> Message:
    """The message in `payload`. Raises `ValueError`, `TypeError` or `IndexError` for anything
    that is none, or has more parts than `MOST_PARTS`."""
    counted: dict[str, Any] = {}
    if len(payload) > MOST_PARTS // 32:  # so small a message has no more parts than bytes
        count = _ValueCounter().of
        most = MOST_PARTS // 16
        counted = {"list_hook": count, "object_hook": count}
        counted |= {"max_array_len": most, "max_map_len": most}
    tag, *fields = msgpack.unpackb(
        payload, use_list=False, unicode_errors="surrogatepass", strict_map_key=False, **counted
    )
    kind: Any = _KINDS[tag]
    message: Message = kind(*fields)
    return message


MOST_PARTS = 1 << 21
"""Values in a message, which all become objects: it is read with the GIL held, 10 million a second,
and a byte is enough for one."""

_Parts = TypeVar("_Parts", tuple[Any, ...], dict[Any, Any])


class _ValueCounter:
    """Of values in arrays and maps, while a message is read."""

    def __init__(self) -> None:
        self._left = MOST_PARTS

    def of(self, parts: _Parts) -> _Parts:
        self._left -= len(parts) + 1
        if self._left < 0:
            raise ValueError(f"a message of more than {MOST_PARTS} parts")
        return parts
