"""What the headers of an infer request say about its body, its answer and its time. Pure.

Called by `server.rest.infer` for every request: most headers are passed over with one look-up.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

from server.errors import InvalidRequest
from server.request_ids import NAME, good_id
from server.rest.compression import Coding, accepted_coding, coding_of

Headers = Iterable[tuple[bytes, bytes]]
"""Names in lower case, values."""

_LENGTH = b"inference-header-content-length"
_CODING = b"content-encoding"
_ACCEPTS = b"accept-encoding"
_ENVOY_TIMEOUT = b"x-envoy-expected-rq-timeout-ms"
_GRPC_TIMEOUT = b"grpc-timeout"
_NOTED = frozenset({_LENGTH, _CODING, _ACCEPTS, _ENVOY_TIMEOUT, _GRPC_TIMEOUT, NAME})

_TIMEOUT = re.compile(r"([0-9]{1,8})([HMSmun])")
_UNIT_NS = {
    "H": 3_600_000_000_000,
    "M": 60_000_000_000,
    "S": 1_000_000_000,
    "m": 1_000_000,
    "u": 1_000,
    "n": 1,
}


class Envelope(NamedTuple):
    """`json_length`: bytes of the body that are JSON, None for all, 0 for a raw request.

    `coding` compressed the body, `answer_coding` shall compress the answer. `timeout_ns`: how long
    the client will wait, 0 if it did not say. `client_id`: what it calls the request in
    x-request-id, "" for nothing that can be said again.
    """

    json_length: int | None = None
    coding: Coding = ""
    answer_coding: Coding = ""
    timeout_ns: int = 0
    client_id: str = ""


PLAIN_ENVELOPE = Envelope()


def read_envelope(headers: Headers) -> Envelope:
    """The envelope in `headers`.

    Raises InvalidRequest, Unsupported in Triton's words.
    """
    own_headers: dict[bytes, str] | None = None
    for name, value in headers:
        if name in _NOTED:
            if own_headers is None:
                own_headers = {}
            own_headers[name] = value.decode("latin-1")
    return PLAIN_ENVELOPE if own_headers is None else _read(own_headers)


def _read(by_name: dict[bytes, str]) -> Envelope:
    length = by_name.get(_LENGTH)
    return Envelope(
        None if length is None else _json_length(length),
        coding_of(by_name.get(_CODING, "")),
        accepted_coding(by_name[_ACCEPTS]) if _ACCEPTS in by_name else "",
        _timeout_ns(by_name) if _ENVOY_TIMEOUT in by_name or _GRPC_TIMEOUT in by_name else 0,
        good_id(by_name[NAME]) if NAME in by_name else "",
    )


def _json_length(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 18:
        raise InvalidRequest(f"Unable to parse Inference-Header-Content-Length, got: {text}")
    return int(text)


def check_json_length(length: int, size: int) -> None:
    """Whether a JSON header of `length` bytes fits a (decompressed) body of `size` bytes."""
    if length > size:
        raise InvalidRequest(f"inference header size should be in range (0, {size}), got: {length}")


def body_bytes(headers: Headers) -> int:
    """Bytes of body the client announced; 0 for none, and for chunks, whose end is not known."""
    for name, value in headers:
        if name == b"content-length":
            return int(value)  # the parser takes nothing but digits
    return 0


class CasePreservedName(bytes):
    """A header's name in lower case that remembers how its client wrote it."""

    spelt: bytes


def spelt_headers(headers: Headers) -> list[tuple[str, str]]:
    """Names as the clients wrote them, where that is known."""
    return [
        (getattr(name, "spelt", name).decode("latin-1"), value.decode("latin-1"))
        for name, value in headers
    ]


def text_headers(headers: Headers) -> list[tuple[str, str]]:
    """Names in lower case."""
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]


def _timeout_ns(headers: dict[bytes, str]) -> int:
    """The shorter of the two, if both are given."""
    found = []
    if _ENVOY_TIMEOUT in headers:
        found.append(_envoy_timeout_ns(headers[_ENVOY_TIMEOUT]))
    if _GRPC_TIMEOUT in headers:
        found.append(grpc_timeout_ns(headers[_GRPC_TIMEOUT]))
    return min((timeout for timeout in found if timeout), default=0)


def _envoy_timeout_ns(text: str) -> int:
    """Milliseconds; 0 means no timeout, as in Envoy."""
    if not (text.isascii() and text.isdigit()) or len(text) > 12:
        raise InvalidRequest(
            f"the header x-envoy-expected-rq-timeout-ms is '{text}'; "
            "it must be a whole number of milliseconds"
        )
    return int(text) * 1_000_000


def grpc_timeout_ns(text: str) -> int:
    """gRPC's form of a timeout: up to eight digits and a unit; at least 1 ns.

    Raises InvalidRequest.
    """
    found = _TIMEOUT.fullmatch(text)
    if found is None:
        raise InvalidRequest(
            f"the header grpc-timeout is '{text}'; it must be up to eight digits and a unit: "
            "H, M, S, m (ms), u (µs) or n (ns)"
        )
    return max(1, int(found[1]) * _UNIT_NS[found[2]])
