"""How an error looks to a client of OpenAI's API: the status and `{"error": {…}}` of theirs.

`server.errors` is the table beneath; what differs from it here is what OpenAI's clients act upon:
a full queue is 429, so that they come back.
"""

import math
from typing import NamedTuple

import msgspec

from schedulers.errors import DeadlineExceeded, QueueFull
from schedulers.llm.errors import PromptTooLong, SenselessRequest
from server.errors import (
    CrossSite,
    Forbidden,
    InvalidRequest,
    Misdirected,
    ModelLoading,
    NotReady,
    RateLimited,
    RequestTooLarge,
    Restricted,
    Unauthenticated,
    UnknownModel,
    Unsupported,
)
from server.rest.errors import headers_of, visible


class OpenAIErrorDetail(msgspec.Struct, frozen=True):
    """What happened, and why; `param`: the field that is wrong."""

    message: str
    type: str
    param: str | None
    code: str | None


class OpenAIError(msgspec.Struct, frozen=True):
    """A request that was refused, or failed."""

    error: OpenAIErrorDetail


COME_BACK_S = 1.0
"""Of a full queue that does not say itself when it will have room."""

WRONG, TOO_MUCH, OURS = "invalid_request_error", "rate_limit_error", "server_error"


class BadField(InvalidRequest):
    """A member of a request's body; `param` is its name, as "messages[0].role"."""

    def __init__(self, message: str, param: str, code: str | None = None) -> None:
        super().__init__(message)
        self.param = param
        self.code = code


class _ErrorKind(NamedTuple):
    """`type`, `code` and `param` of the envelope; `status` 0 for the table's."""

    type: str
    code: str | None = None
    param: str | None = None
    status: int = 0


# The first matching class wins.
_KINDS: tuple[tuple[type[Exception], _ErrorKind], ...] = (
    (RequestTooLarge, _ErrorKind(WRONG, "request_too_large")),
    (UnknownModel, _ErrorKind(WRONG, "model_not_found", "model")),
    (Unauthenticated, _ErrorKind(WRONG, "invalid_api_key")),
    (Forbidden, _ErrorKind(WRONG, "permission_denied")),
    (Restricted, _ErrorKind(WRONG, "permission_denied")),
    (CrossSite, _ErrorKind(WRONG, "cross_site")),
    (Misdirected, _ErrorKind(WRONG, "misdirected")),
    (RateLimited, _ErrorKind(TOO_MUCH, "rate_limit_exceeded")),
    (QueueFull, _ErrorKind(TOO_MUCH, "overloaded", status=429)),
    (PromptTooLong, _ErrorKind(WRONG, "context_length_exceeded", status=400)),
    (SenselessRequest, _ErrorKind(WRONG, status=400)),
    (DeadlineExceeded, _ErrorKind(OURS, "deadline_exceeded")),
    (NotReady, _ErrorKind(OURS, "model_not_ready", "model")),
    (Unsupported, _ErrorKind(WRONG, "unsupported")),
)


def not_ready_yet(model: str, error: ModelLoading | NotReady) -> ModelLoading | NotReady:
    """`error` as clients of this API read it: no model that is known is called unknown."""
    if not error.awaited:
        return error
    return NotReady(f"The model '{model}' is not ready", error.awaited)


class OpenAIErrorResponse(NamedTuple):
    """An error as it is answered. `headers` tell a client what to do about it."""

    status: int
    body: bytes
    headers: tuple[tuple[bytes, bytes], ...]


def openai_body(status: int, text: str) -> bytes:
    """The envelope of what is no exception of ours: a path or a method that is nobody's."""
    return _body(text, _ErrorKind(WRONG if status < 500 else OURS, "unknown_url"))


def refusal(error: Exception, about: str = "a request") -> OpenAIErrorResponse:
    """What the client gets; an error that nobody foresaw is logged as our bug."""
    status, text = visible(error, about)
    kind = _kind_of(error, status)
    return OpenAIErrorResponse(kind.status or status, _body(text, kind), _headers_of(error))


def _body(text: str, kind: _ErrorKind) -> bytes:
    return msgspec.json.encode(
        OpenAIError(OpenAIErrorDetail(text, kind.type, kind.param, kind.code))
    )


def _kind_of(error: Exception, status: int) -> _ErrorKind:
    if isinstance(error, BadField):
        return _ErrorKind(WRONG, error.code, error.param)
    kind = next((kind for one, kind in _KINDS if isinstance(error, one)), None)
    return kind or _ErrorKind(WRONG if status < 500 else OURS)


def _headers_of(error: Exception) -> tuple[tuple[bytes, bytes], ...]:
    if isinstance(error, QueueFull):
        seconds = error.retry_after_s or COME_BACK_S
        return ((b"Retry-After", b"%d" % max(1, math.ceil(seconds))),)
    return headers_of(error)
