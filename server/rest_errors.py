"""How an error looks over REST: Triton's status and `{"error": text}`."""

import logging

import orjson

from server.errors import client_text, is_ours, status_of

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


def error_body(text: str) -> bytes:
    return orjson.dumps({"error": text})
