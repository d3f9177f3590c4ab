"""The one table from what can go wrong to what a client sees.

ServingError
├── InvalidRequest     the client's input; says what would have been accepted
├── RequestTooLarge           more bytes, elements, depth or chunks than the limit named in the
message ├── UnknownModel       no such model, version, or nothing loaded
│   └── ModelLoading   none of its versions has been loaded yet; one is being loaded
├── UnknownRegion      no shared memory region of that name is registered
├── RegionExists       one of that name is registered already
├── NotReady           the model exists and cannot answer now; says why
├── Restricted         this part of the API asks for a header that was not there
├── Unauthenticated    a token is needed, or the one shown is no good (any more)
├── CrossSite          a web page of another site asks for something that is not only read
├── Misdirected        the Host header names another server
├── Forbidden          whose token it is may not do this; names the scope or role that may
├── RateLimited        the token asks too often; says when to come back
├── Unsupported        understood and not offered
├── ModelLoadFailed    an explicit load failed; says why
└── Internal           our own promise is broken
"""

from typing import NamedTuple

from backends.errors import BackendError, ModelError
from repository.errors import RepositoryError
from schedulers.errors import (
    BadSequence,
    CallsTooDeep,
    Cancelled,
    EnsembleFailed,
    QueueFull,
    SchedulingError,
)
from schedulers.llm.errors import PromptTooLong, SenselessRequest
from schedulers.reply import NotOneResponse


class ServingError(Exception):
    """Base of everything `server` raises; the message is what the client reads."""


class InvalidRequest(ServingError): ...


class RequestTooLarge(InvalidRequest): ...


class UnknownModel(ServingError): ...


class ModelLoading(UnknownModel):
    """Triton answers for it as for a model without versions; OpenAI's paths say 503. `awaited`:
    what it waits for ("version 1 is loading")."""

    def __init__(self, message: str, awaited: str) -> None:
        super().__init__(f"{message}: {awaited}")
        self.awaited = awaited


class UnknownRegion(ServingError): ...


class RegionExists(ServingError): ...


class NotReady(ServingError):
    """`awaited`: after what it is ready by itself ("version 1 is loading"); "" if after nothing."""

    def __init__(self, message: str, awaited: str = "") -> None:
        super().__init__(f"{message}: {awaited}" if awaited else message)
        self.awaited = awaited


class BuffersFull(ServingError): ...


class Restricted(ServingError): ...


class Unauthenticated(ServingError): ...


class CrossSite(ServingError): ...


class Misdirected(ServingError): ...


class Forbidden(ServingError): ...


class RateLimited(ServingError):
    """`retry_after_s`: seconds until the token may ask again."""

    def __init__(self, message: str, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Unsupported(ServingError): ...


class ModelLoadFailed(ServingError): ...


class Internal(ServingError): ...


class StatusMapping(NamedTuple):
    """A row of Triton's status mapping: HTTP status and the name of the gRPC status code."""

    http: int
    grpc: str


# The first matching class wins; subclasses stand above their bases.
TABLE: tuple[tuple[type[Exception], StatusMapping], ...] = (
    (InvalidRequest, StatusMapping(400, "INVALID_ARGUMENT")),
    (UnknownModel, StatusMapping(404, "NOT_FOUND")),
    (UnknownRegion, StatusMapping(404, "NOT_FOUND")),
    (RegionExists, StatusMapping(400, "ALREADY_EXISTS")),
    (NotReady, StatusMapping(503, "UNAVAILABLE")),
    (BuffersFull, StatusMapping(503, "RESOURCE_EXHAUSTED")),
    (Restricted, StatusMapping(403, "UNAVAILABLE")),
    (Unauthenticated, StatusMapping(401, "UNAUTHENTICATED")),
    (CrossSite, StatusMapping(403, "PERMISSION_DENIED")),
    (Misdirected, StatusMapping(421, "INVALID_ARGUMENT")),
    (Forbidden, StatusMapping(403, "PERMISSION_DENIED")),
    (RateLimited, StatusMapping(429, "RESOURCE_EXHAUSTED")),
    (Unsupported, StatusMapping(501, "UNIMPLEMENTED")),
    (ModelLoadFailed, StatusMapping(400, "INVALID_ARGUMENT")),
    (RepositoryError, StatusMapping(400, "INVALID_ARGUMENT")),
    (Cancelled, StatusMapping(400, "CANCELLED")),
    (NotOneResponse, StatusMapping(400, "INVALID_ARGUMENT")),
    (PromptTooLong, StatusMapping(400, "INVALID_ARGUMENT")),
    (SenselessRequest, StatusMapping(400, "INVALID_ARGUMENT")),
    (CallsTooDeep, StatusMapping(500, "INTERNAL")),
    (EnsembleFailed, StatusMapping(400, "INVALID_ARGUMENT")),
    (BadSequence, StatusMapping(400, "INVALID_ARGUMENT")),
    (SchedulingError, StatusMapping(503, "UNAVAILABLE")),
    (BackendError, StatusMapping(500, "INTERNAL")),
    (Internal, StatusMapping(500, "INTERNAL")),
    (Exception, StatusMapping(500, "INTERNAL")),
)


NOT_READY_RETRY_S = 2.0
"""When to ask a model again that loads or whose instances are being restarted."""

BUSY = StatusMapping(429, "UNAVAILABLE")
"""A full queue that knows when to come back; Triton's, which does not, are 503."""

MODEL_CODES: dict[str, StatusMapping] = {
    "INVALID_ARG": StatusMapping(400, "INVALID_ARGUMENT"),
    "NOT_FOUND": StatusMapping(404, "NOT_FOUND"),
    "UNAVAILABLE": StatusMapping(503, "UNAVAILABLE"),
    "INTERNAL": StatusMapping(500, "INTERNAL"),
    "UNSUPPORTED": StatusMapping(501, "UNIMPLEMENTED"),
    "ALREADY_EXISTS": StatusMapping(400, "ALREADY_EXISTS"),
    "UNKNOWN": StatusMapping(400, "UNKNOWN"),
    "CANCELLED": StatusMapping(400, "CANCELLED"),
}
"""The codes a model may choose for its own errors, by Triton's names."""


def status_of(error: Exception) -> StatusMapping:
    """What a client sees of `error`; anything unlisted is our fault: 500, INTERNAL."""
    if isinstance(error, QueueFull) and error.retry_after_s is not None:
        return BUSY
    if isinstance(error, ModelError):
        return MODEL_CODES.get(error.code, MODEL_CODES["INTERNAL"])
    return next(status for kind, status in TABLE if isinstance(error, kind))


def is_ours(error: Exception) -> bool:
    """Whether `error` is none the table foresees: our bug, to be logged with its traceback."""
    return not any(isinstance(error, kind) for kind, _ in TABLE[:-1])


def client_text(error: Exception) -> str:
    """What the client reads."""
    return f"{type(error).__name__}: {error}. This is a bug." if is_ours(error) else str(error)
