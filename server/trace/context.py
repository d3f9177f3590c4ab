"""The caller's own trace: W3C `traceparent` and `tracestate`, read from headers."""

import re
from collections.abc import Iterable
from random import getrandbits
from typing import NamedTuple

_TRACEPARENT = re.compile(rb"(?!ff)([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_STATE_BYTES = 512
"""W3C: a tracestate may be dropped when it is longer."""

_SAMPLED = 1


class ParentSpan(NamedTuple):
    """The caller's span. `sampled`: the caller records its trace; `state` as it was sent."""

    trace_id: int
    span_id: int
    sampled: bool
    state: str


def new_span(parent: ParentSpan | None) -> ParentSpan:
    """A span inside the parent, or of a trace of its own."""
    trace_id = getrandbits(128) or 1 if parent is None else parent.trace_id
    return ParentSpan(trace_id, getrandbits(64) or 1, True, "" if parent is None else parent.state)


def parent_in(headers: Iterable[tuple[bytes, bytes]]) -> ParentSpan | None:
    """The caller's span, if the headers (names in lower case) name a valid one."""
    parent, states = b"", []
    for name, value in headers:
        if name == b"traceparent":
            parent = value
        elif name == b"tracestate":
            states.append(value)
    found = _TRACEPARENT.fullmatch(parent.strip())
    if found is None or (found[1] == b"00" and found[5]):
        return None
    trace_id, span_id = int(found[2], 16), int(found[3], 16)
    if not trace_id or not span_id:
        return None
    state = b",".join(states)
    text = state.decode("latin-1") if len(state) <= _STATE_BYTES else ""
    return ParentSpan(trace_id, span_id, bool(int(found[4], 16) & _SAMPLED), text)
