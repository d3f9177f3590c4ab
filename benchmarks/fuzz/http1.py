"""HTTP/1.1 for the fuzzer: valid requests, the records of one, and what no answer may say."""

import re
from collections.abc import Mapping

from benchmarks.fuzz.target import Wrong

_LENGTH = re.compile(rb"(?im)^Content-Length: \d+(?=\r$)")
ALLOWED = (501, 503, 505, 507)
"""Statuses from 500 on that may be an answer: not offered, not now, not this HTTP, no room."""
_TRITONS = re.compile(rb"attempt to access JSON non-|hape does not match true shape")
"""In texts that Triton answers with 500 though the client is at fault, and so do we."""


def request(
    method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost"]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def split(data: bytes) -> list[bytes]:
    """The lines of the head, then the body in pieces that end where JSON's do."""
    head, end, body = data.partition(b"\r\n\r\n")
    if not end:
        raise ValueError("no head")
    lines = [line + b"\r\n" for line in head.split(b"\r\n")]
    return [*lines, b"\r\n", *re.findall(rb"[^,\[\]{}]*[,\[\]{}]|[^,\[\]{}]+\Z", body)]


def join(records: list[bytes]) -> bytes:
    """One request whose Content-Length is right, where it has one."""
    data = b"".join(records)
    head, end, body = data.partition(b"\r\n\r\n")
    return _LENGTH.sub(b"Content-Length: %d" % len(body), head) + end + body


def check_answer(answer: bytes) -> None:
    """Raises Wrong for what is no HTTP, for a fault of the server, and for a bug it tells of."""
    if not answer:
        return
    if not answer.startswith(b"HTTP/1.1 "):
        raise Wrong(f"this is no answer: {answer[:100]!r}")
    status = int(answer[9:12])
    if status >= 500 and status not in ALLOWED and not _TRITONS.search(answer):
        raise Wrong(f"answered {answer[:500]!r}")
    if b"This is a bug" in answer:
        raise Wrong(f"the answer calls itself a bug: {answer[:500]!r}")
