"""How an error looks over REST: Triton's status and `{"error": text}`."""

import logging
import math

import orjson

from schedulers.errors import QueueFull
from server.errors import (
    NOT_READY_RETRY_S,
    NotReady,
    RateLimited,
    Unauthenticated,
    client_text,
    is_ours,
    status_of,
)

_log = logging.getLogger(__name__)


def visible(error: Exception, about: str = "a request") -> tuple[int, str]:
    """HTTP status and text for the client; an error outside the table is logged as our bug.

    `about` names the request in the log: its id, model or path.
    """
    status, text = status_of(error).http, client_text(error)
    if is_ours(error):
        _log.error("unexpected error while answering %s", about, exc_info=error)
    else:
        _log.debug("%s is answered with %d: %s", about, status, text)
    return status, text


def headers_of(error: Exception) -> tuple[tuple[bytes, bytes], ...]:
    """Headers that tell a client what to do about `error`, for those that have any."""
    if isinstance(error, Unauthenticated):
        return ((b"WWW-Authenticate", b'Bearer realm="modelyard"'),)
    seconds = error.retry_after_s if isinstance(error, RateLimited | QueueFull) else None
    if isinstance(error, NotReady) and error.awaited:
        seconds = NOT_READY_RETRY_S
    if seconds is not None:
        return ((b"Retry-After", b"%d" % math.ceil(seconds)),)
    return ()


def error_body(text: str) -> bytes:
    return orjson.dumps({"error": text})
