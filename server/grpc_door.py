"""The gRPC door: Triton's `inference.GRPCInferenceService` and `grpc.health.v1` on grpc.aio.

A request comes off the wire as bytes, is parsed (`server.grpc_calls`), decoded
(`server.codec_grpc`) and handed to `server.dataplane`; the Reply comes back the same way. Methods
that are not in the table are refused as UNIMPLEMENTED by grpcio itself.
"""

import asyncio
import errno
import socket
import time
from collections.abc import AsyncIterator, Mapping

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2
from tritonclient.grpc import service_pb2 as pb

from schedulers.request import InferRequest
from server import describe
from server.codec_grpc import decode, encode
from server.dataplane import DataPlane, parse_version
from server.errors import InvalidRequest, Unsupported
from server.grpc_calls import Context, Method, parse, server_stream, stream, unary, unary_bytes
from server.grpc_heads import Heads
from server.grpc_health import INFERENCE, Health
from server.grpc_stream import InferStream
from server.served import Served
from server.settings import Settings
from server.statistics import statistics


async def start(dataplane: DataPlane, settings: Settings) -> "GrpcDoor":
    """Listen on `grpc_address`:`grpc_port` (0: any free port).

    Raises OSError naming address, port and flag when the port cannot be had.
    """
    address, port = settings.grpc_address, settings.grpc_port
    _require_free(address, port)
    limit = settings.grpc_max_message_size
    server = grpc.aio.server(
        options=(
            ("grpc.so_reuseport", 0),
            ("grpc.max_receive_message_length", limit),
            ("grpc.max_send_message_length", limit),
        )
    )
    service = _Service(dataplane)
    server.add_generic_rpc_handlers((service,))
    host = f"[{address}]" if ":" in address else address
    try:
        bound = server.add_insecure_port(f"{host}:{port}")
    except RuntimeError as error:
        raise OSError(errno.EADDRINUSE, _refusal(address, port, str(error))) from error
    await server.start()
    return GrpcDoor(server, service, bound)


class GrpcDoor:
    """An open gRPC port."""

    def __init__(self, server: grpc.aio.Server, service: "_Service", port: int) -> None:
        self._server = server
        self._service = service
        self.port = port

    async def stop(self, grace_secs: float) -> None:
        """Accept nothing new, answer what is in flight, cut off what is left after the grace."""
        self._service.close_streams()
        await self._server.stop(grace_secs)


def _require_free(address: str, port: int) -> None:
    """Try the port ourselves: grpcio only says that it failed, and not why."""
    if not port:
        return
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            reason = error.strerror or str(error)
            raise OSError(error.errno, _refusal(address, port, reason)) from error


def _refusal(address: str, port: int, reason: str) -> str:
    return (
        f"cannot listen for gRPC on {address} port {port}: {reason}; "
        "choose another port with --grpc-port"
    )


class _Service(grpc.GenericRpcHandler):  # type: ignore[type-arg]
    """One dictionary from a call's full path to what answers it."""

    def __init__(self, dataplane: DataPlane) -> None:
        self._dataplane = dataplane
        self._closing = asyncio.Event()
        self._streams: set[InferStream] = set()
        self._heads = Heads()
        health = Health(dataplane, self._closing)
        self._methods: Mapping[str, Method] = {
            f"/{INFERENCE}/{name}": method for name, method in self._inference().items()
        } | {
            "/grpc.health.v1.Health/Check": unary(health_pb2.HealthCheckRequest, health.check),
            "/grpc.health.v1.Health/Watch": server_stream(
                health_pb2.HealthCheckRequest, health.watch
            ),
        }

    def _inference(self) -> dict[str, Method]:
        return {
            "ModelInfer": unary_bytes(self.infer),
            "ModelStreamInfer": stream(self.infer_stream),
            "ServerLive": unary(pb.ServerLiveRequest, self.live),
            "ServerReady": unary(pb.ServerReadyRequest, self.ready),
            "ModelReady": unary(pb.ModelReadyRequest, self.model_ready),
            "ServerMetadata": unary(pb.ServerMetadataRequest, self.metadata),
            "ModelMetadata": unary(pb.ModelMetadataRequest, self.model_metadata),
            "ModelConfig": unary(pb.ModelConfigRequest, self.model_config),
            "ModelStatistics": unary(pb.ModelStatisticsRequest, self.model_statistics),
            "RepositoryIndex": unary(pb.RepositoryIndexRequest, self.index),
            "RepositoryModelLoad": unary(pb.RepositoryModelLoadRequest, self.load),
            "RepositoryModelUnload": unary(pb.RepositoryModelUnloadRequest, self.unload),
        }

    def service(self, details: grpc.HandlerCallDetails) -> Method | None:
        return self._methods.get(details.method)

    def close_streams(self) -> None:
        """End watches at once, and infer streams when what they have read is answered."""
        self._closing.set()
        for open_stream in self._streams:
            open_stream.stop()

    async def infer(self, data: bytes, context: Context) -> bytes:
        """A client that goes away cancels this coroutine, and so the request."""
        arrived_ns = time.monotonic_ns()
        served, request = self._known(data, arrived_ns) or self._decoded(data, arrived_ns)
        remaining_s: float | None = context.time_remaining()
        if remaining_s is not None:
            request.deadline_ns = arrived_ns + int(remaining_s * 1e9)
        response = await self._dataplane.submit(served, request).one()
        answer: bytes = encode(response, served.signature).SerializeToString()
        return answer

    def _known(self, data: bytes, arrived_ns: int) -> tuple[Served, InferRequest] | None:
        head = self._heads.find(data)
        if head is None:
            return None
        served = self._dataplane.find(head.model, head.version)
        if head.signature is not served.signature:
            return None
        return served, head.request(data, arrived_ns)

    def _decoded(self, data: bytes, arrived_ns: int) -> tuple[Served, InferRequest]:
        message = parse(pb.ModelInferRequest, data)
        served = self._dataplane.find(message.model_name, message.model_version)
        if served.signature.decoupled:
            raise Unsupported(
                "ModelInfer RPC doesn't support models with decoupled transaction policy"
            )
        request = decode(message, served.signature, arrived_ns)
        self._heads.learn(data, message, request, served.signature)
        return served, request

    async def infer_stream(self, requests: AsyncIterator[bytes], context: Context) -> None:
        opened = InferStream(self._dataplane, requests, context)
        self._streams.add(opened)
        try:
            await opened.run()
        finally:
            self._streams.discard(opened)

    async def live(self, message: object, context: Context) -> pb.ServerLiveResponse:
        return pb.ServerLiveResponse(live=True)

    async def ready(self, message: object, context: Context) -> pb.ServerReadyResponse:
        return pb.ServerReadyResponse(ready=self._dataplane.ready())

    async def model_ready(
        self, message: pb.ModelReadyRequest, context: Context
    ) -> pb.ModelReadyResponse:
        return pb.ModelReadyResponse(
            ready=self._dataplane.model_ready(message.name, message.version)
        )

    async def metadata(self, message: object, context: Context) -> pb.ServerMetadataResponse:
        return describe.server_metadata(self._dataplane.name, self._dataplane.version)

    async def model_metadata(
        self, message: pb.ModelMetadataRequest, context: Context
    ) -> pb.ModelMetadataResponse:
        served = self._named(message.name, message.version)
        if message.version:
            return describe.metadata(served, (served.version.number,))
        versions = describe.versions_of(message.name, self._dataplane.models.served())
        return describe.metadata(served, versions)

    async def model_config(
        self, message: pb.ModelConfigRequest, context: Context
    ) -> pb.ModelConfigResponse:
        return describe.config(self._named(message.name, message.version))

    async def model_statistics(
        self, message: pb.ModelStatisticsRequest, context: Context
    ) -> pb.ModelStatisticsResponse:
        return statistics(self._dataplane.statistics(message.name, message.version))

    async def index(
        self, message: pb.RepositoryIndexRequest, context: Context
    ) -> pb.RepositoryIndexResponse:
        _refuse_repository_name(message.repository_name)
        return describe.index(self._dataplane.index(message.ready))

    async def load(
        self, message: pb.RepositoryModelLoadRequest, context: Context
    ) -> pb.RepositoryModelLoadResponse:
        _refuse_repository_name(message.repository_name)
        for key in message.parameters:
            raise Unsupported(
                f"load parameter '{key}' is not offered by this server; "
                f"'{message.model_name}' is loaded from its repository as it stands"
            )
        await self._dataplane.models.load(message.model_name)
        return pb.RepositoryModelLoadResponse()

    async def unload(
        self, message: pb.RepositoryModelUnloadRequest, context: Context
    ) -> pb.RepositoryModelUnloadResponse:
        _refuse_repository_name(message.repository_name)
        dependents = message.parameters.get("unload_dependents")
        if dependents is not None and dependents.WhichOneof("parameter_choice") != "bool_param":
            raise InvalidRequest(
                "invalid value type for 'unload_dependents' parameter, expected bool_param."
            )
        await self._dataplane.models.unload(
            message.model_name, dependents is not None and dependents.bool_param
        )
        return pb.RepositoryModelUnloadResponse()

    def _named(self, name: str, version: str) -> Served:
        return self._dataplane.models.get(name, parse_version(version) if version else None)


def _refuse_repository_name(name: str) -> None:
    if name:
        raise Unsupported("'repository_name' specification is not supported")
