"""One gRPC call: bytes in, bytes out, and errors as statuses.

Every method of `server.grpc_door` is wrapped here. Parsing is ours and not grpcio's, so that a
malformed message is the client's error with a reason instead of UNKNOWN.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NoReturn

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message

from backends.errors import BackendError
from repository.errors import RepositoryError
from schedulers.errors import SchedulingError
from server.errors import Internal, InvalidRequest, ServingError, status_of

Context = grpc.aio.ServicerContext[Any, Any]
Call = Callable[[Any, Context], Awaitable[Any]]
if TYPE_CHECKING:  # generic in grpcio's stubs only
    Method = grpc.RpcMethodHandler[Any, Any]
else:
    Method = grpc.RpcMethodHandler

EXPECTED = (ServingError, SchedulingError, BackendError, RepositoryError)
"""What our own rooms raise; anything else is a bug and says so."""

logger = logging.getLogger(__name__)


def unary(kind: type[Message], answer: Call) -> Method:
    """A method that takes one `kind` and answers with the message `answer` returns."""

    async def work(data: bytes, context: Context) -> bytes:
        message: Message = await answer(parse(kind, data), context)
        return message.SerializeToString()

    return grpc.unary_unary_rpc_method_handler(_guarded(work))


def unary_bytes(answer: Call) -> Method:
    """A method that reads its bytes itself and answers with bytes."""
    return grpc.unary_unary_rpc_method_handler(_guarded(answer))


def server_stream(kind: type[Message], answer: Call) -> Method:
    """A method that takes one `kind`; `answer` writes to the context as often as it likes."""

    async def work(data: bytes, context: Context) -> None:
        await answer(parse(kind, data), context)

    return grpc.unary_stream_rpc_method_handler(_guarded(work))


def stream(answer: Call) -> Method:
    """A method with streams both ways; `answer` reads and writes bytes on the context."""
    return grpc.stream_stream_rpc_method_handler(_guarded(answer))


def _guarded(work: Call) -> Any:
    async def call(data: Any, context: Context) -> Any:
        try:
            return await work(data, context)
        except EXPECTED as error:
            await abort(context, error)
        except grpc.aio.AbortError:
            raise
        except Exception as error:
            logger.exception("a gRPC call failed unexpectedly")
            await abort(context, Internal(f"{type(error).__name__}: {error}. This is a bug."))

    return call


async def abort(context: Context, error: Exception) -> NoReturn:
    """End the call with the status `server.errors` gives the error, and its message verbatim."""
    await context.abort(grpc.StatusCode[status_of(error).grpc], str(error))


def parse(kind: type[Message], data: bytes) -> Any:
    """The message in `data`. Raises InvalidRequest."""
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise InvalidRequest(
            f"failed to parse the request as {kind.DESCRIPTOR.full_name}: {error}"
        ) from error
