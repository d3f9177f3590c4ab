"""How a gRPC call ends: status codes, and the header blocks that carry them. Pure."""

from server.http2.wire.hpack import Headers, literal
from server.request_ids import NAME, id_bytes

CODES = (
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
)
"""By number."""

TEXT_BYTES = 6 * 1024
"""Of a status text on the wire; grpcio refuses a response with more than 8 KiB of headers."""

_NUMBERS = {name: str(number).encode() for number, name in enumerate(CODES)}
_STATUS_200 = b"\x88"
"""`:status: 200` in HPACK's static table."""
_ENCODED = [
    bytes((octet,)) if 0x20 <= octet < 0x7F and octet != ord("%") else b"%%%02X" % octet
    for octet in range(256)
]
"""Every octet as it travels in grpc-message."""

ANSWER = _STATUS_200 + literal(((b"content-type", b"application/grpc"),))
"""The head of every response that has a body."""
_REQUEST_ID = b"\x00" + bytes((len(NAME),)) + NAME
_OURS = [
    ANSWER + _REQUEST_ID + bytes((len(id_bytes(0)) - 1 + digits,)) + id_bytes(0)[:-1]
    for digits in range(17)
]
"""The head of a response with an id of ours up to its number, by the number's hexadecimal digits;
no length takes HPACK more than one byte."""


def answer_head(number: int, client_id: str) -> bytes:
    """The same, with the id of the call: the client's, or that of our number."""
    if client_id:
        return ANSWER + literal(((NAME, client_id.encode()),))
    return b"%b%x" % (_OURS[(number.bit_length() + 3) // 4], number)


ENDED_WELL = literal(((b"grpc-status", b"0"),))
ACCEPTED_ENCODINGS = literal(((b"grpc-accept-encoding", b"identity,deflate,gzip"),))


class CallFailed(Exception):
    """The call ends with this status; `code` is a name of CODES, `metadata` goes with it."""

    def __init__(self, code: str, text: str, metadata: Headers = ()) -> None:
        super().__init__(text)
        self.code = code
        self.metadata = metadata


def ended_badly(code: str, text: str, metadata: Headers = ()) -> bytes:
    """Trailers that say so; the text is percent-encoded, and cut where it is too long."""
    fields = ((b"grpc-status", _NUMBERS[code]), (b"grpc-message", _encoded(text)))
    return literal((*fields, *metadata))


def refusal(status: str) -> bytes:
    """The whole answer, in plain HTTP, to a request that is no gRPC."""
    return literal(((b":status", status.encode()), (b"content-length", b"0")))


def _encoded(text: str) -> bytes:
    encoded = b"".join(map(_ENCODED.__getitem__, text.encode("utf-8", "replace")))
    if len(encoded) <= TEXT_BYTES:
        return encoded
    cut = 0
    for character in text:
        size = sum(len(_ENCODED[octet]) for octet in character.encode("utf-8", "replace"))
        if cut + size > TEXT_BYTES:
            break
        cut += size
    return encoded[:cut] + b"..."
