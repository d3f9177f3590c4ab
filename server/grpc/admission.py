"""Who makes a gRPC call, and whether they may: known by its head, decided by its message.

The guard (`server.grpc.middleware`) calls `recognised` before a message is read, and the holder of
a token stays on the call as its `admission`; methods ask `authorise` when they know the model.
"""

from typing import Any

from server.access.authorizer import Authorizer
from server.access.permissions import RPCS
from server.access.token_holder import TokenHolder
from server.dataplane import DataPlane
from server.errors import ServingError
from server.grpc.calls import Answer, failure
from server.http2.calls.grpc_call import GrpcCall
from server.http2.calls.head import RequestHead
from server.http2.calls.streaming_call import StreamingCall

_STREAM = "ModelStreamInfer"


def recognised(authorizer: Authorizer, method: str, head: RequestHead) -> TokenHolder | None:
    """Who calls `method`; None for anybody. One call counts as one request, but a stream's messages
    count by themselves. Raises CallFailed."""
    if not authorizer.watches or RPCS[method] is None:
        return None
    try:
        shown = _authorization(head)
        return authorizer.recognise(shown) if method == _STREAM else authorizer.admit(shown)
    except ServingError as error:
        raise failure(error, head.path) from error


def holder_of(call: GrpcCall) -> TokenHolder | None:
    """Whose token the call came with; None for anybody."""
    holder = call.admission
    return holder if isinstance(holder, TokenHolder) else None


def allowed(dataplane: DataPlane, method: str, answer: Answer) -> Answer:
    """`answer`, to those who may ask for what their message says."""
    ask_of = RPCS[method]
    if ask_of is None:
        return answer

    async def ask(message: Any, call: StreamingCall) -> Any:
        holder = holder_of(call)
        if holder is not None:
            dataplane.authorise(holder, *ask_of(message))
        return await answer(message, call)

    return ask


def _authorization(head: RequestHead) -> str | None:
    for name, value in head.metadata:
        if name == "authorization" and isinstance(value, str):
            return value
    return None
