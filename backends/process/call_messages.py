"""What a worker asks of its server on behalf of its model, and what it is answered.

These travel on a connection of their own, whose descriptor comes with `Load`. Worker: `CallRequest`
asks another model, `CallRead` and `CallCancel` say how its responses fare, `ControlRequest` loads,
unloads or looks at a model, `FamilyRequest` opens a family of metrics, `MetricValues` answers a
`MetricsQuery`. Server: `CallPart` for each part of an answer to a call, `ControlAnswer` to the two
requests behind them. Every number is the worker's own. Tensors lie in `data`, or in a region of
their own that travels with the message.
"""

import msgspec
from msgspec import Struct

from backends.process.layout import TensorBlock
from backends.process.messages import count_parts

MOST_MESSAGE_BYTES = 1 << 24
"""Of a message without its tensors, which travel beside it when they are large."""

LOAD, UNLOAD, IS_READY = "load", "unload", "ready"


class CallRequest(Struct, frozen=True, array_like=True, tag="call"):
    """Call a model. `version`: -1 for any. `parameters`: JSON text, empty for none. `stream`: any
    number of responses, of which `WINDOW` may be on their way unread; otherwise exactly one.
    `causes`: the numbers of the requests it is made for; empty for all that are being executed.
    """

    number: int
    model: str
    version: int
    id: str
    correlation_id: int | str
    flags: int
    timeout_us: int
    parameters: str
    requested_outputs: tuple[str, ...]
    stream: bool
    causes: tuple[int, ...]
    blocks: tuple[TensorBlock, ...]
    data: bytes


class CallRead(Struct, frozen=True, array_like=True, tag="call_read"):
    """So many more responses of a call were read."""

    number: int
    taken: int


class CallCancel(Struct, frozen=True, array_like=True, tag="call_cancel"):
    """Nobody waits for this call any more."""

    number: int


class ControlRequest(Struct, frozen=True, array_like=True, tag="control"):
    """`verb` is one of LOAD, UNLOAD, IS_READY. `config`: JSON text in place of the repository's;
    `blocks`: files by path, as UINT8. `dependents`: unload those too."""

    number: int
    verb: str
    model: str
    version: str
    config: str
    dependents: bool
    blocks: tuple[TensorBlock, ...]
    data: bytes


class FamilyRequest(Struct, frozen=True, array_like=True, tag="family"):
    """Open a family of metrics."""

    number: int
    name: str
    description: str
    kind: str


class SeriesValue(Struct, frozen=True, array_like=True):
    """One series: its labels, its value, and when it was last set (`time.monotonic_ns`, 0 if never
    but by increments). Of a histogram, `value` is the sum and `counts` has the observations of each
    bucket of `bounds`, and of the last one, which has none."""

    labels: tuple[tuple[str, str], ...]
    value: float
    set_ns: int
    bounds: tuple[float, ...]
    counts: tuple[int, ...]


class MetricValues(Struct, frozen=True, array_like=True, tag="metrics"):
    """Every series of every family there still is, by its name."""

    families: dict[str, tuple[SeriesValue, ...]]


class CallError(Struct, frozen=True, array_like=True):
    """Why a call has no (further) response; `code` is Triton's name for the kind of error."""

    text: str
    code: str


class CallPart(Struct, frozen=True, array_like=True, tag="call_part"):
    """A response, an error, or (`empty`) nothing but the end of the answer."""

    number: int
    last: bool
    empty: bool
    error: CallError | None
    blocks: tuple[TensorBlock, ...]
    data: bytes
    parameters: str


class ControlAnswer(Struct, frozen=True, array_like=True, tag="control_answer"):
    """`error` is empty for success; `ready` answers IS_READY."""

    number: int
    error: str
    ready: bool


class MetricsQuery(Struct, frozen=True, array_like=True, tag="metrics_query"):
    """Send `MetricValues`."""


FromWorker = CallRequest | CallRead | CallCancel | ControlRequest | FamilyRequest | MetricValues
FromServer = CallPart | ControlAnswer | MetricsQuery

_from_worker: msgspec.msgpack.Decoder[FromWorker] = msgspec.msgpack.Decoder(FromWorker)
_from_server: msgspec.msgpack.Decoder[FromServer] = msgspec.msgpack.Decoder(FromServer)


def decode_from_worker(payload: bytes) -> FromWorker:
    """Raises ValueError for anything that is no message, or has too many parts."""
    count_parts(payload)
    return _from_worker.decode(payload)


def decode_from_server(payload: bytes) -> FromServer:
    """The server's messages are ours and believed."""
    return _from_server.decode(payload)
