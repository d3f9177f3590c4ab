"""Routes over gRPC: what a call's message and metadata say of its unit, and who answered, in its
trailers.

`server.grpc.door` and `server.grpc.stream` come here for names that are a route's.
"""

from functools import lru_cache

from tritonclient.grpc import service_pb2 as pb

from server.access.holder import Holder
from server.dataplane import DataPlane
from server.http2.exchange import Exchange
from server.http2.hpack import literal
from server.routing.routing import header_in, labels_in, unit_of
from server.routing.table import HEADER_NAME, Route, Target
from server.routing.trials import STAMP_NAME

MOST_NAMED = 16
"""Arms that the trailers of one stream name; each of its responses names its own."""


def picked(
    dataplane: DataPlane,
    route: Route,
    call: Exchange,
    holder: Holder | None,
    message: pb.ModelInferRequest | None,
) -> Target:
    """Who answers. Without a message there are no parameters."""
    if route.unit_header:
        return dataplane.routing.pick(route, header_in(route, call.metadata))
    if not route.asks:
        return dataplane.routing.draw(route)
    labels, wanted, parameter = labels_in(route, call.metadata), route.parameter, None
    if message is not None and wanted and wanted in message.parameters:
        found = message.parameters[wanted]
        choice = found.WhichOneof("parameter_choice")
        parameter = getattr(found, choice) if choice else None
    principal = holder.principal.id if holder is not None else None
    unit = unit_of(route, labels, principal, parameter)
    return dataplane.routing.pick(route, unit, labels)


def name_arm(call: Exchange, target: Target) -> None:
    """Let the call's trailers say who answers."""
    block, before = _trailer(target.label), call.trailers
    if not before and not target.stamp:
        call.trailers = block
        return
    if before and (block in before or len(before) >= MOST_NAMED * len(block)):
        return
    if target.stamp:
        block += literal(((STAMP_NAME.encode(), target.stamp.encode()),))
    call.trailers = before + block


@lru_cache(1024)
def _trailer(label: str) -> bytes:
    return literal(((HEADER_NAME.encode(), label.encode()),))
