"""One gRPC call: bytes in, bytes out, and errors as statuses.

Every method of `server.grpc.service` is made here. `server.http2` carries the calls and knows
nothing of messages and of what our rooms raise.
"""

import logging
import math
from collections.abc import Awaitable, Callable
from typing import Any

from google.protobuf.message import DecodeError, Message

from backends.errors import BackendError
from repository.errors import RepositoryError
from schedulers.errors import SchedulingError
from server.errors import (
    InvalidRequest,
    RateLimited,
    ServingError,
    client_text,
    is_ours,
    status_of,
)
from server.grpc.parsed_size import check_parsed_size
from server.http2.calls.service import StreamingMethod, UnaryCall
from server.http2.calls.status import CallFailed
from server.http2.calls.streaming_call import Converse, StreamingCall

Answer = Callable[[Any, StreamingCall], Awaitable[Message]]
Write = Callable[[Any, StreamingCall], Awaitable[None]]

EXPECTED = (ServingError, SchedulingError, BackendError, RepositoryError)
"""What our own rooms raise; anything else is a bug and says so."""

_log = logging.getLogger(__name__)


def unary(kind: type[Message], answer: Answer) -> StreamingMethod:
    """A method that takes one `kind` and answers with the message `answer` returns."""

    async def work(call: StreamingCall) -> None:
        message = await answer(parse(kind, await call.message()), call)
        await call.write(message.SerializeToString())

    return stream(work)


def server_stream(kind: type[Message], write: Write) -> StreamingMethod:
    """A method that takes one `kind`; `write` sends as many messages as it likes."""

    async def work(call: StreamingCall) -> None:
        await write(parse(kind, await call.message()), call)

    return stream(work)


def stream(converse: Converse) -> StreamingMethod:
    """A method with streams both ways; `converse` reads and writes bytes."""

    async def work(call: StreamingCall) -> None:
        try:
            await converse(call)
        except Exception as error:
            raise failure(error, call.head.path) from error

    return StreamingMethod(work)


def refuse(call: UnaryCall, error: Exception, about: str) -> None:
    """End the call with the status of `error`; `about` is as for `failure`."""
    failed = failure(error, about)
    call.fail(failed.code, str(failed))


def failure(error: Exception, about: str) -> CallFailed:
    """The status `server.errors` gives the error, and its message; our own bugs are logged.

    `about` names the call in the log: its method, or the request's id and model.
    """
    if isinstance(error, CallFailed):
        return error
    if is_ours(error):
        _log.error("unexpected error while answering %s", about, exc_info=error)
    code, text = status_of(error).grpc, client_text(error)
    _log.debug("%s is answered with %s: %s", about, code, text)
    if isinstance(error, RateLimited):
        wait_s = b"%d" % math.ceil(error.retry_after_s)
        return CallFailed(code, text, ((b"retry-after", wait_s),))
    return CallFailed(code, text)


def parse(kind: type[Message], data: bytes) -> Any:
    """The message in `data`. Raises InvalidRequest, TooLarge."""
    check_parsed_size(kind, data)
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise InvalidRequest(
            f"failed to parse the request as {kind.DESCRIPTOR.full_name}: {error}"
        ) from error
