"""What gateways and the control process say to each other: one Struct per message. Pure.

A field that a side does not know is ignored and one that is missing has its default; a message of a
kind that it does not know is `Unknown`. So old and new processes understand each other while one of
them is replaced.
"""

from typing import Any

import msgspec
from msgspec import Struct

from control.drift.points import DriftScores, DriftStored, DriftWindow
from control.gateways.queries import Query, QueryAnswer
from control.health import VersionHealth
from control.rollouts.arms import ArmTotals
from control.rollouts.assignment_counts import AssignmentCount
from control.series.points import SeriesStored, SeriesWindow
from control.statistics.histogram import Histogram

PROTOCOL = 1
"""Grows when an older side cannot understand what a newer one says."""


class Hello(Struct, frozen=True, tag="hello"):
    """A gateway's first message."""

    server: str
    pid: int = 0
    protocol: int = PROTOCOL


class DesiredUpdate(Struct, frozen=True, tag="desired"):
    """`state`: what `control.gateways.wire.encode_state` made."""

    state: bytes


class LoadRow(Struct, frozen=True, array_like=True):
    """What a gateway says of one version; `version` 0 is the model as a whole. `health` is None
    from a gateway that does not judge it. `loaded_at`: when what answers now was loaded, in seconds
    since the epoch; 0 where nothing is, or of a gateway that does not say."""

    model: str
    version: int
    state: str
    reason: str
    health: VersionHealth | None = None
    loaded_at: float = 0.0


class LoadReport(Struct, frozen=True, tag="loads"):
    """All a gateway says: `settled` when nothing is being loaded for `revision` any more.

    `in_use`: digests of the snapshots whose files something still reads. `pending`: subject and
    reason of each alias or route that is not in force.
    """

    server: str
    revision: int
    settled: bool
    rows: tuple[LoadRow, ...]
    in_use: frozenset[str]
    pending: tuple[tuple[str, str], ...] = ()


class ArmReport(Struct, frozen=True, array_like=True):
    """One arm's outcomes since the gateway began. `copies`: of mirrored requests; `rollout` is ""
    for a route that none moves; `in_flight` is as of now, as is `resident_bytes`, of the largest
    worker."""

    route: str
    rollout: str
    arm: str
    model: str
    version: int
    copies: bool
    in_flight: int
    deaths: int
    resident_bytes: int
    outcomes: ArmTotals


class ArmReports(Struct, frozen=True, tag="windows"):
    """What a gateway has to tell; `boot` is new with each start of it. An arm that is not mentioned
    is as it was. `assignments`: how rollouts shared units out, of all of them, by rollout; None
    when it does not say."""

    server: str
    boot: str
    arms: tuple[ArmReport, ...]
    assignments: dict[str, tuple[AssignmentCount, ...]] | None = None


class ExposureRow(Struct, frozen=True, array_like=True):
    """A unit that met an arm of an experiment, `at` in seconds since the epoch."""

    experiment: str
    unit: str
    arm: str
    at: float


class Exposures(Struct, frozen=True, tag="exposures"):
    rows: tuple[ExposureRow, ...]


class FeedbackRow(Struct, frozen=True, array_like=True):
    """A client's value for the experiments on `name`; `at` in seconds since the epoch. Either
    `stamp` or `unit` is given; `key` is the client's own, "" for none."""

    name: str
    metric: str
    value: bool | int | float
    at: float
    stamp: str
    experiment: str
    unit: str
    key: str


class FeedbackRows(Struct, frozen=True, tag="feedback"):
    rows: tuple[FeedbackRow, ...]


class Ask(Struct, frozen=True, tag="ask"):
    number: int
    query: Query


class Answered(Struct, frozen=True, tag="answer"):
    """`body`: the query's `Answer`, packed."""

    number: int
    body: msgspec.Raw


class Unknown(Struct, frozen=True):
    """A message of a kind that only another version knows."""

    kind: str


Message = (
    Hello
    | DesiredUpdate
    | LoadReport
    | ArmReports
    | Exposures
    | FeedbackRows
    | Ask
    | Answered
    | SeriesWindow
    | SeriesStored
    | DriftWindow
    | DriftStored
    | DriftScores
)


class _Kind(Struct):
    type: str


_KINDS = frozenset(
    [
        *("hello", "desired", "loads", "windows", "exposures", "feedback", "ask", "answer"),
        *("series", "series_stored", "drift", "drift_stored", "drift_scores"),
    ]
)


def _packed(one: object) -> object:
    if isinstance(one, Histogram):
        return one.as_list()
    raise TypeError(f"a message cannot hold a {type(one).__name__}")


def _unpacked(kind: type, packed: Any) -> Any:
    return Histogram.from_list(packed) if kind is Histogram else packed


_encoder = msgspec.msgpack.Encoder(enc_hook=_packed)
_decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(Message, dec_hook=_unpacked)


def encode(message: Message) -> bytes:
    return _encoder.encode(message)


def decode(packed: bytes) -> Message | Unknown:
    """Raises ValueError for what is none of the messages."""
    try:
        message: Message = _decoder.decode(packed)
        return message
    except msgspec.ValidationError:
        kind = msgspec.msgpack.decode(packed, type=_Kind).type
        if kind in _KINDS:
            raise
        return Unknown(kind)


def answer(number: int, body: QueryAnswer) -> Answered:
    return Answered(number, msgspec.Raw(_encoder.encode(body)))


def answer_of(query: Query, message: Answered) -> Any:
    """The `Answer` of the query. Raises ValueError."""
    return msgspec.msgpack.decode(message.body, type=query.Answer)
