"""What servers of one database say to each other, and how it is cut into NOTIFY payloads. Pure."""

import base64
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
from msgspec import Struct

from control.gateways.queries import AnsweredRequests, RequestsQuery

PIECE_BYTES = 5800
"""Of a message in one payload: with its head and in base64 below PostgreSQL's 7,999 characters."""

MOST_PIECES = 256
"""Of one message, 1.4 MiB compressed; the largest answer of 500 requests takes a third of it."""

MOST_BYTES = 16 * 2**20
"""Of a message, decompressed."""

MOST_INCOMPLETE, KEEP_S = 64, 10.0
"""Messages of which pieces are missing, and for how long the rest of one is waited for."""


class PeerQuery(Struct, frozen=True, tag="query"):
    """`number` is the asker's, and comes back with the answer; `boot` is the asker's own."""

    number: str
    boot: str
    query: RequestsQuery


class PeerAnswer(Struct, frozen=True, tag="answer"):
    """`answer` is None where `problem` says why."""

    number: str
    server: str
    answer: AnsweredRequests | None
    problem: str = ""


PeerMessage = PeerQuery | PeerAnswer


class _Piece(Struct, frozen=True, array_like=True):
    message: str
    index: int
    of: int
    body: bytes


_encoder = msgspec.msgpack.Encoder()
_messages: msgspec.msgpack.Decoder[PeerMessage] = msgspec.msgpack.Decoder(PeerMessage)
_pieces = msgspec.msgpack.Decoder(_Piece)


def payloads_of(message: PeerMessage, name: str) -> list[str]:
    """The message as NOTIFY payloads; `name` is one that no other message has. Raises ValueError
    for one that is too large."""
    packed = zlib.compress(_encoder.encode(message), 1)
    bodies = [packed[at : at + PIECE_BYTES] for at in range(0, len(packed), PIECE_BYTES)]
    if len(bodies) > MOST_PIECES:
        raise ValueError(f"a message to another server has {len(packed)} bytes")
    pieces = (_Piece(name, index, len(bodies), body) for index, body in enumerate(bodies))
    return [base64.b64encode(_encoder.encode(piece)).decode() for piece in pieces]


@dataclass(slots=True)
class _Incomplete:
    since: float
    of: int
    bodies: dict[int, bytes] = field(default_factory=dict)


class MessageAssembler:
    """Messages of the pieces that come, in any order; those that stay incomplete are forgotten."""

    def __init__(self) -> None:
        self._incomplete: dict[str, _Incomplete] = {}

    def add(self, payload: str, now: float) -> PeerMessage | None:
        """The message that is whole with this piece, if one is. Raises ValueError for what is no
        piece, or makes no message."""
        piece = _piece_in(payload)
        self._forget(now)
        known = self._incomplete.get(piece.message)
        if known is None:
            if len(self._incomplete) >= MOST_INCOMPLETE:
                raise ValueError("too many messages of other servers are incomplete")
            known = self._incomplete[piece.message] = _Incomplete(now, piece.of)
        if piece.of != known.of:
            raise ValueError("two pieces of a message differ in how many there are")
        known.bodies[piece.index] = piece.body
        if len(known.bodies) < known.of:
            return None
        del self._incomplete[piece.message]
        return _message_in([known.bodies[index] for index in range(known.of)])

    def _forget(self, now: float) -> None:
        old = [name for name, one in self._incomplete.items() if now - one.since > KEEP_S]
        for name in old:
            del self._incomplete[name]


def _piece_in(payload: str) -> _Piece:
    piece = _pieces.decode(base64.b64decode(payload, validate=True))
    if not 0 <= piece.index < piece.of <= MOST_PIECES:
        raise ValueError(f"piece {piece.index} of {piece.of}")
    return piece


def _message_in(bodies: Sequence[bytes]) -> PeerMessage:
    unpacker = zlib.decompressobj()
    try:
        packed = unpacker.decompress(b"".join(bodies), MOST_BYTES)
    except zlib.error as error:
        raise ValueError(f"a message of another server: {error}") from error
    if not unpacker.eof:
        raise ValueError("a message of another server is too large, or cut off")
    return _messages.decode(packed)
