"""Know the head of an infer request again: clients send the same one with every request.

`server.rest.protocol` asks here before it parses. What the parser, the path and `read_envelope`
once said of a head holds for every request that begins with the same bytes, so a known one costs a
search and a look-up instead of a parse with a call for each header.
"""

import re
from typing import NamedTuple
from urllib.parse import unquote

from server.errors import ServingError
from server.rest.envelope import Envelope, Headers, read_envelope

MAX_TEMPLATES = 64
MAX_HEAD_BYTES = 2048
MAX_ONCE_SEEN = 1024
_END = b"\r\n\r\n"
_NEVER_KNOWN = frozenset({b"transfer-encoding", b"expect", b"upgrade"})
"""Headers that change how the body comes: those requests are parsed each time."""


class HeadTemplate(NamedTuple):
    """What one head says. `infer`: the match of its path; `model`: name and version in it; `bytes`:
    its own length; `body_bytes`: that of its body; `host`: the value of its Host header."""

    infer: re.Match[bytes]
    model: tuple[str, str]
    headers: list[tuple[bytes, bytes]]
    envelope: Envelope
    host: bytes
    bytes: int
    body_bytes: int


class HeadTemplates:
    """The heads that came more than once lately; forgotten together when they are too many. One
    listener's connections share them."""

    def __init__(self) -> None:
        self._templates: dict[bytes, HeadTemplate] = {}
        self._once_seen: set[int] = set()

    def find(self, data: bytes) -> HeadTemplate | None:
        """The template of `data`, if it is one whole request whose head is known."""
        end = data.find(_END, 0, MAX_HEAD_BYTES) + 4
        template = self._templates.get(data[:end])
        if template is None or len(data) - end != template.body_bytes:
            return None
        return template

    def learn(
        self, data: bytes, infer: re.Match[bytes], headers: list[tuple[bytes, bytes]], size: int
    ) -> None:
        """Remember the head of `data`, which was parsed as one request for inference with a body
        of `size` bytes that leaves its connection open; from the second time on, since a head
        with an id of its own never comes again."""
        end = data.find(_END, 0, MAX_HEAD_BYTES) + 4
        if end < len(_END) or not size or len(data) - end != size:
            return
        head = data[:end]
        if not head.count(b"\n") == head.count(_END[:2]) == len(headers) + 2:
            return  # a parser that takes other ends of lines found its end elsewhere
        seen = hash(head)
        if seen not in self._once_seen:
            if len(self._once_seen) >= MAX_ONCE_SEEN:
                self._once_seen.clear()
            self._once_seen.add(seen)
            return
        template = _template(infer, headers, end, size)
        if template is not None:
            if len(self._templates) >= MAX_TEMPLATES:
                self._templates.clear()
            self._templates[head] = template


def model_and_version(infer: re.Match[bytes]) -> tuple[str, str]:
    """As the client wrote them in the path; "" for no version."""
    name, version = infer.groups(b"")
    text = name.decode("latin-1")
    return (unquote(text) if "%" in text else text), version.decode()


def _template(infer: re.Match[bytes], headers: Headers, end: int, size: int) -> HeadTemplate | None:
    """None for a head that cannot stand for others."""
    said = list(headers)
    names = [name for name, _ in said]
    hosts = [value for name, value in said if name == b"host"]
    if len(hosts) != 1 or not _NEVER_KNOWN.isdisjoint(names):
        return None
    if [value for name, value in said if name == b"content-length"] != [b"%d" % size]:
        return None
    try:
        envelope = read_envelope(said)
    except ServingError:
        return None
    return HeadTemplate(infer, model_and_version(infer), said, envelope, hosts[0], end, size)
