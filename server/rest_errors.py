"""How an error looks over REST: Triton's status and `{"error": text}`."""

import logging

import orjson

from server.errors import client_text, is_ours, status_of

_log = logging.getLogger(__name__)


def visible(error: Exception) -> tuple[int, str]:
    """HTTP status and text for the client; an error outside the table is logged as our bug."""
    if is_ours(error):
        _log.error("unexpected error while answering a request", exc_info=error)
    return status_of(error).http, client_text(error)


def error_body(text: str) -> bytes:
    return orjson.dumps({"error": text})
