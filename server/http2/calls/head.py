"""The head of a gRPC request: what its HTTP/2 headers ask for. Pure.

Read once for each distinct header block (`server.http2.header_blocks`);
`server.http2.calls.service` opens calls from it.
"""

import base64
import binascii
import re
from dataclasses import dataclass

from server.http2.calls.status import CallFailed
from server.http2.stream import MalformedHeaders
from server.http2.wire.hpack import Headers
from server.request_ids import NAME, good_id

Metadata = tuple[tuple[str, str | bytes], ...]
"""Lower-case names and values in the order they came; bytes where the name ends in `-bin`."""

ENCODINGS = ("identity", "deflate", "gzip")

_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+\Z")
_BAD_VALUE = re.compile(rb"[\x00\r\n]")
_PADDED = re.compile(rb"\A[ \t]|[ \t]\Z")
_BINARY_PARTS = 100
"""Values that one `-bin` header may join by commas; each is decoded, and 16 KiB could be 16,000."""
_TIMEOUT = re.compile(r"([0-9]{1,8})([HMSmun])\Z")
_UNIT_S = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
_PSEUDO = (b":method", b":scheme", b":path", b":authority")
_CONNECTION_BOUND = frozenset(
    b"connection keep-alive proxy-connection transfer-encoding upgrade".split()
)
_OURS = frozenset(
    b"te content-type content-length grpc-timeout grpc-encoding grpc-accept-encoding".split()
)
"""Said to the transport and not to the method."""


@dataclass(frozen=True, slots=True)
class RequestHead:
    """What is asked. `refused_with`: an HTTP status for what is no gRPC, else empty.

    `fault`: how the call must fail before it begins, or None. `timeout_s`: None for no deadline.
    `client_id`: what the client calls the call in x-request-id.
    """

    path: str
    metadata: Metadata = ()
    timeout_s: float | None = None
    encoding: str = "identity"
    content_length: int | None = None
    refused_with: str = ""
    fault: CallFailed | None = None
    client_id: str = ""


def read_head(headers: Headers) -> RequestHead:
    """The head in decoded headers. Raises MalformedHeaders (RFC 9113, section 8).

    Spaces around a value are no part of it: RFC 9113 calls such a field malformed, but clients send
    them, and gRPC's protocol (PROTOCOL-HTTP2, ASCII-Value) lets a server strip them.
    """
    headers = _trimmed(headers)
    pseudo, fields = _split(headers)
    content_type = fields.get(b"content-type", b"")
    length = _content_length(fields)
    path = pseudo[b":path"].decode("latin-1")
    if not re.match(rb"application/grpc(?:\Z|[+;])", content_type):
        return RequestHead(path, content_length=length, refused_with="415")
    if pseudo[b":method"] != b"POST":
        return RequestHead(path, content_length=length, refused_with="405")
    encoding = fields.get(b"grpc-encoding", b"identity").decode("latin-1")
    try:
        timeout_s = _timeout_s(fields.get(b"grpc-timeout"))
        return RequestHead(
            path,
            _metadata(headers),
            timeout_s,
            _checked_encoding(encoding),
            length,
            client_id=good_id(fields.get(NAME, b"").decode("latin-1")),
        )
    except CallFailed as fault:
        return RequestHead(path, content_length=length, fault=fault)


def _trimmed(headers: Headers) -> Headers:
    if not any(_PADDED.search(value) for _, value in headers):
        return headers
    return tuple(
        (name, value if name.startswith(b":") else value.strip(b" \t")) for name, value in headers
    )


def _split(headers: Headers) -> tuple[dict[bytes, bytes], dict[bytes, bytes]]:
    """Pseudo-headers and the others; of a name that repeats, the last value."""
    pseudo: dict[bytes, bytes] = {}
    fields: dict[bytes, bytes] = {}
    for name, value in headers:
        if _BAD_VALUE.search(value):
            raise MalformedHeaders(f"the value of header {name!r}")
        if name.startswith(b":"):
            if _PADDED.search(value) or fields or name in pseudo or name not in _PSEUDO:
                raise MalformedHeaders(
                    f"pseudo-header {name!r} padded, twice, unknown or out of place"
                )
            pseudo[name] = value
        else:
            _check(name, value)
            fields[name] = value
    if not (pseudo.get(b":path") and b":method" in pseudo and b":scheme" in pseudo):
        raise MalformedHeaders("a request without :method, :scheme or :path")
    return pseudo, fields


def _check(name: bytes, value: bytes) -> None:
    if not _NAME.match(name) or name in _CONNECTION_BOUND:
        raise MalformedHeaders(f"header {name!r}")
    if name == b"te" and value != b"trailers":
        raise MalformedHeaders("te other than trailers")


def _content_length(fields: dict[bytes, bytes]) -> int | None:
    value = fields.get(b"content-length")
    if value is None:
        return None
    if not value.isdigit() or len(value) > 18:
        raise MalformedHeaders("content-length is no number")
    return int(value)


def _timeout_s(value: bytes | None) -> float | None:
    if value is None:
        return None
    text = value.decode("latin-1")
    found = _TIMEOUT.match(text)
    if not found:
        allowed = "1 to 8 digits and one of H, M, S, m, u, n"
        raise CallFailed("INTERNAL", f"grpc-timeout '{text}' is no timeout; write {allowed}")
    return int(found[1]) * _UNIT_S[found[2]]


def _checked_encoding(encoding: str) -> str:
    if encoding not in ENCODINGS:
        allowed = ", ".join(ENCODINGS)
        text = f"grpc-encoding '{encoding}' is not offered; this server takes {allowed}"
        raise CallFailed("UNIMPLEMENTED", text)
    return encoding


def _metadata(headers: Headers) -> Metadata:
    found: list[tuple[str, str | bytes]] = []
    for name, value in headers:
        if name.startswith(b":") or name in _OURS:
            continue
        text = name.decode("ascii")
        if name.endswith(b"-bin"):
            found += [(text, part) for part in _binaries(text, value)]
        else:
            found.append((text, value.decode("latin-1")))
    return tuple(found)


def _binaries(name: str, value: bytes) -> list[bytes]:
    parts = value.split(b",", _BINARY_PARTS)
    if len(parts) > _BINARY_PARTS:
        text = f"metadata '{name}' joins more than {_BINARY_PARTS} values; send fewer"
        raise CallFailed("INTERNAL", text)
    return [_binary(name, part.strip(b" \t")) for part in parts]


def _binary(name: str, value: bytes) -> bytes:
    try:
        return base64.b64decode(value + b"=" * (-len(value) % 4), validate=True)
    except binascii.Error:
        raise CallFailed("INTERNAL", f"the value of metadata '{name}' is no base64") from None
