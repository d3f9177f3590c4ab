"""The one table from errors of the control side to HTTP statuses, and the envelope they travel in.

RequestError         what is wrong with the HTTP request itself, before anything was looked up
├── Malformed        not what the description says: names the parameter, or line and column
├── Unauthenticated  nobody known; says how to give credentials
├── CrossOriginWrite        a state-changing request made by another site's page
├── Misdirected      a Host header that is not ours
├── RequestBodyTooLarge         a body above the limit
└── UnsupportedMediaType        a body that is not JSON
"""

import dataclasses
import errno
import logging
from dataclasses import dataclass
from math import ceil

from starlette.exceptions import HTTPException
from starlette.responses import Response

from control.errors import (
    Conflict,
    DatabaseDamaged,
    DatabaseFull,
    DatabaseGone,
    Invalid,
    LostLease,
    NotAllowed,
    NotFound,
    Stale,
    TooMany,
)
from control.gateways.link import GatewayUnreachable
from control.views import ErrorDetail, ErrorDocument, to_json
from repository.errors import DiskFull
from repository.git.errors import (
    BadBody,
    BadGitName,
    BodyTooLarge,
    Busy,
    GitMissing,
    GitTimedOut,
    RepositoryExists,
    UnknownRepository,
    UnknownRevision,
)
from repository.lfs.errors import (
    BadRange,
    BadToken,
    BadUpload,
    BatchTooLarge,
    LfsError,
    UnknownObject,
    UploadStalled,
    WrongAlgorithm,
)

_log = logging.getLogger(__name__)


class RequestError(Exception):
    """Base of what the API itself refuses; `field` names the parameter, "" for none."""

    def __init__(self, message: str, field: str = "") -> None:
        super().__init__(message)
        self.field = field


class MalformedRequest(RequestError):
    """A body or parameter that is not what the description says."""


class CredentialsRequired(RequestError):
    """No credentials, or none that are known."""


class CrossOriginWrite(RequestError):
    """A page of another origin wanted to change something."""


class WrongHost(RequestError):
    """The Host header names somebody else: DNS rebinding, or a missing --public-url."""


class RequestBodyTooLarge(RequestError):
    """The body is above the limit."""


class UnsupportedMediaType(RequestError):
    """The body's Content-Type is not the one this path takes."""


STATUSES: dict[type[Exception], tuple[int, str]] = {
    MalformedRequest: (400, "malformed"),
    CredentialsRequired: (401, "unauthenticated"),
    NotAllowed: (403, "forbidden"),
    CrossOriginWrite: (403, "cross_site"),
    NotFound: (404, "not_found"),
    Conflict: (409, "conflict"),
    Stale: (412, "changed_meanwhile"),
    RequestBodyTooLarge: (413, "too_large"),
    UnsupportedMediaType: (415, "wrong_type"),
    WrongHost: (421, "misdirected"),
    Invalid: (422, "invalid"),
    TooMany: (429, "too_many"),
    UnknownRepository: (404, "not_found"),
    UnknownRevision: (404, "not_found"),
    BadGitName: (422, "invalid"),
    RepositoryExists: (409, "conflict"),
    BadBody: (400, "malformed"),
    BodyTooLarge: (413, "too_large"),
    LfsError: (422, "invalid"),
    BadUpload: (400, "wrong_bytes"),  # of a 422 git-lfs makes a push without the object
    BadToken: (403, "forbidden"),
    UnknownObject: (404, "not_found"),
    UploadStalled: (408, "stalled"),
    WrongAlgorithm: (409, "wrong_algorithm"),
    BatchTooLarge: (413, "too_large"),
    BadRange: (416, "bad_range"),
    DiskFull: (507, "disk_full"),
    Busy: (503, "busy"),
    GitMissing: (503, "git_missing"),
    GitTimedOut: (503, "git_timed_out"),
    GatewayUnreachable: (503, "gateway_away"),
    LostLease: (503, "lost_lease"),
    DatabaseGone: (503, "database_gone"),
    DatabaseDamaged: (503, "database_damaged"),
    DatabaseFull: (507, "disk_full"),
}
"""Status and code of each; a subclass not in the table has its base's."""

NO_ROOM = frozenset((errno.ENOSPC, errno.EDQUOT))

CHALLENGE = 'Bearer realm="modelyard", Basic realm="modelyard", charset="UTF-8"'
_AGAIN_S = 1
_HTTP_CODES = {404: "not_found", 405: "method_not_allowed"}


@dataclass(frozen=True, slots=True)
class ErrorResponse:
    """An error as the client sees it."""

    status: int
    code: str
    message: str
    field: str = ""
    headers: dict[str, str] = dataclasses.field(default_factory=dict)


def trouble_of(error: Exception, request_id: str) -> ErrorResponse:
    """What the client is told; an error outside the table is logged as our bug."""
    if isinstance(error, HTTPException):
        code = _HTTP_CODES.get(error.status_code, "http")
        return ErrorResponse(
            error.status_code, code, str(error.detail), headers=dict(error.headers or {})
        )
    for kind in type(error).__mro__:
        if kind in STATUSES:
            status, code = STATUSES[kind]
            return ErrorResponse(
                status, code, str(error), getattr(error, "field", ""), _headers(error)
            )
    if isinstance(error, OSError) and error.errno in NO_ROOM:
        where = f" ({error.filename})" if error.filename else ""
        _log.error("request %s: no space left on the disk%s", request_id, where)
        return ErrorResponse(
            507,
            "disk_full",
            f"there is no space left on the server's disk{where}: nothing was changed; free some "
            "space "
            "there and try again",
        )
    _log.error("unexpected error while answering request %s", request_id, exc_info=error)
    return ErrorResponse(
        500, "internal", f"This is a bug. The server's log has more about request {request_id}."
    )


def error_response(trouble: ErrorResponse, request_id: str) -> Response:
    """The error as an `ErrorDocument`."""
    detail = ErrorDetail(trouble.code, trouble.message, trouble.field, request_id)
    headers = {
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
        "X-Request-Id": request_id,
        **trouble.headers,
    }
    return Response(
        to_json(ErrorDocument(detail)), trouble.status, headers, media_type="application/json"
    )


def _headers(error: Exception) -> dict[str, str]:
    match error:
        case CredentialsRequired():
            return {"WWW-Authenticate": CHALLENGE}
        case TooMany():
            return {"Retry-After": str(max(1, ceil(error.retry_after_s)))}
        case DatabaseDamaged() | DatabaseFull():
            return {}
        case LostLease() | DatabaseGone() | Busy() | GitTimedOut():
            return {"Retry-After": str(_AGAIN_S)}
        case BadRange():
            return {"Content-Range": f"bytes */{error.size_bytes}"}
    return {}
