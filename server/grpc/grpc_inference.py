"""An inference request that came over gRPC: what its call and its message say of it, and what its
trailers say of who answered."""

from collections.abc import Iterable, Mapping
from functools import lru_cache

from tritonclient.grpc import service_pb2 as pb

from schedulers.request import Sequence
from server.codec.grpc_infer import parameter_of, sequence_of
from server.grpc.middleware import text_metadata
from server.http2.calls.grpc_call import GrpcCall
from server.http2.wire.hpack import literal
from server.inference import Inference
from server.routing.experiments.route_experiments import STAMP_NAME
from server.routing.routing import labels_in, unit_header_in
from server.routing.table import HEADER_NAME, CompiledRoute, Target
from server.trace.record import GRPC, RequestReceipt

MOST_NAMED = 16
"""Arms that the trailers of one stream name; each of its responses names its own."""


class GrpcInference(Inference):
    """`message`: None while its head alone is known, and then it has no parameters."""

    __slots__ = ("call", "message")

    call: GrpcCall
    message: pb.ModelInferRequest | None

    def unit_in_header(self, route: CompiledRoute) -> str:
        return unit_header_in(route, self.call.metadata)

    def labels(self, route: CompiledRoute) -> Mapping[str, str]:
        return labels_in(route, self.call.metadata)

    def parameter(self, name: str) -> object:
        return None if self.message is None else parameter_of(self.message, name)

    def sequence(self) -> Sequence | None:
        return None if self.message is None else sequence_of(self.message)

    def receipt(self) -> RequestReceipt:
        """Its message arrived at once; what came before belongs to the connection."""
        headers = [(name.encode(), _bytes(value)) for name, value in self.call.metadata]
        return RequestReceipt(GRPC, self.arrived_ns, self.arrived_ns, headers)

    def text_headers(self) -> Iterable[tuple[str, str]]:
        return text_metadata(self.call.head)


def _bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode()


def name_arm(call: GrpcCall, target: Target) -> None:
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
