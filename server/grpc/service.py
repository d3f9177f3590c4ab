"""The gRPC listener: Triton's `inference.GRPCInferenceService` and `grpc.health.v1`.

`server.http2` carries the calls. Inference has modules of its own, `unary` and `stream`; all other
methods are answered here. Methods that are not in the table are refused as UNIMPLEMENTED.
"""

import asyncio
import os

from google.protobuf.message import Message
from grpc_health.v1 import health_pb2
from tritonclient.grpc import service_pb2 as pb

from server import describe
from server.buffers import BufferBudget
from server.codec.forwarding import HeaderForwarding
from server.dataplane import DataPlane
from server.errors import InvalidRequest, Unsupported
from server.grpc.admission import allowed
from server.grpc.calls import Answer as Ours
from server.grpc.calls import server_stream, stream, unary
from server.grpc.health import INFERENCE, Health
from server.grpc.middleware import guard_of, kinds_of
from server.grpc.shared_memory import shared_memory_methods
from server.grpc.stream import InferStream
from server.grpc.trace import log_setting, trace_setting
from server.grpc.unary import UnaryInfer
from server.http2.calls.service import PLAIN_KINDS, Methods, StreamingMethod, UnaryMethod
from server.http2.calls.streaming_call import StreamingCall
from server.http2.limits import GrpcLimits
from server.http2.listener import Http2Listener, listen
from server.listen_address import ListenAddress
from server.logs.access import AccessLog
from server.model_queries import ModelQueries
from server.overrides import of_message
from server.process.loop_lag import LoopActivity
from server.served_version import ServedVersion
from server.settings.listeners import UNIX
from server.settings.table import Settings
from server.statistics import StatisticsMessages
from server.tls import grpc_context


async def start(
    dataplane: DataPlane,
    settings: Settings,
    log: AccessLog | None,
    budget: BufferBudget,
    activity: LoopActivity,
) -> "GrpcPort":
    """Listen on `grpc_address`:`grpc_port` (0: any free port); messages are held within `budget`.
    `activity` is told of bytes that arrive.

    Raises OSError naming address, port and flag when the port cannot be had, UnusableCertificate.
    """
    address, port = settings.grpc_address, settings.grpc_port
    shared = settings.reuse_port or settings.reuse_grpc_port
    place = ListenAddress(address, port, grpc_context(settings), shared)
    pattern = settings.grpc_header_forward_pattern
    service = _InferenceService(dataplane, HeaderForwarding(pattern) if pattern else None)
    kinds = PLAIN_KINDS if log is None else kinds_of(log)
    limits = GrpcLimits(
        settings.grpc_max_message_size,
        budget,
        settings.grpc_receive_timeout_secs,
        settings.grpc_send_timeout_secs,
        activity,
    )
    try:
        listener = await listen(
            service.methods, place, limits, guard_of(settings, dataplane), kinds
        )
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise OSError(error.errno, _refusal(address, port, reason)) from error
    return GrpcPort(listener, service)


class GrpcPort:
    """An open gRPC port."""

    def __init__(self, listener: Http2Listener, service: "_InferenceService") -> None:
        self._listener = listener
        self._service = service
        self.port = listener.port

    async def stop(self, grace_secs: float) -> None:
        """Accept nothing new, answer what is in flight, cut off what is left after the grace."""
        self._service.close_streams()
        await self._listener.stop(grace_secs)


def _refusal(address: str, port: int, reason: str) -> str:
    if address.startswith(UNIX):
        return (
            f"cannot listen for gRPC on {address}: {reason}; "
            "choose another path with --grpc-address"
        )
    return (
        f"cannot listen for gRPC on {address} port {port}: {reason}; "
        "choose another port with --grpc-port"
    )


class _InferenceService:
    """What answers each method; `methods` is the table, by a call's full path."""

    def __init__(self, dataplane: DataPlane, forwarding: HeaderForwarding | None = None) -> None:
        self._dataplane = dataplane
        self._queries = ModelQueries(dataplane)
        self._statistics = StatisticsMessages()
        self._forwarding = forwarding
        self._closing = asyncio.Event()
        self._streams: set[InferStream] = set()
        health = Health(dataplane, self._closing)
        self.methods: Methods = {
            f"/{INFERENCE}/{name}": method for name, method in self._inference().items()
        } | {
            "/grpc.health.v1.Health/Check": unary(health_pb2.HealthCheckRequest, health.check),
            "/grpc.health.v1.Health/Watch": server_stream(
                health_pb2.HealthCheckRequest, health.watch
            ),
        }

    def _inference(self) -> dict[str, UnaryMethod | StreamingMethod]:
        unaries: dict[str, tuple[type[Message], Ours]] = {
            "ServerLive": (pb.ServerLiveRequest, self.live),
            "ServerReady": (pb.ServerReadyRequest, self.ready),
            "ModelReady": (pb.ModelReadyRequest, self.model_ready),
            "ServerMetadata": (pb.ServerMetadataRequest, self.metadata),
            "ModelMetadata": (pb.ModelMetadataRequest, self.model_metadata),
            "ModelConfig": (pb.ModelConfigRequest, self.model_config),
            "ModelStatistics": (pb.ModelStatisticsRequest, self.model_statistics),
            "RepositoryIndex": (pb.RepositoryIndexRequest, self.index),
            "RepositoryModelLoad": (pb.RepositoryModelLoadRequest, self.load),
            "RepositoryModelUnload": (pb.RepositoryModelUnloadRequest, self.unload),
            "TraceSetting": (pb.TraceSettingRequest, self.trace_setting),
            "LogSettings": (pb.LogSettingsRequest, self.log_settings),
            **shared_memory_methods(self._dataplane.shared_memory),
        }
        return {
            "ModelInfer": UnaryMethod(UnaryInfer(self._dataplane, self._forwarding)),
            "ModelStreamInfer": stream(self.infer_stream),
            **{
                name: unary(kind, allowed(self._dataplane, name, answer))
                for name, (kind, answer) in unaries.items()
            },
        }

    def close_streams(self) -> None:
        """End watches at once, and infer streams when what they have read is answered."""
        self._closing.set()
        for open_stream in self._streams:
            open_stream.stop()

    async def infer_stream(self, call: StreamingCall) -> None:
        opened = InferStream(self._dataplane, call, self._forwarding)
        self._streams.add(opened)
        try:
            await opened.run()
        finally:
            self._streams.discard(opened)

    async def live(self, message: object, call: StreamingCall) -> pb.ServerLiveResponse:
        return pb.ServerLiveResponse(live=True)

    async def ready(self, message: object, call: StreamingCall) -> pb.ServerReadyResponse:
        return pb.ServerReadyResponse(ready=self._queries.ready())

    async def model_ready(
        self, message: pb.ModelReadyRequest, call: StreamingCall
    ) -> pb.ModelReadyResponse:
        return pb.ModelReadyResponse(
            ready=await self._queries.model_ready(message.name, message.version)
        )

    async def metadata(self, message: object, call: StreamingCall) -> pb.ServerMetadataResponse:
        dataplane = self._dataplane
        offers_cuda = dataplane.shared_memory.offers_cuda
        return describe.server_metadata(dataplane.name, dataplane.version, offers_cuda)

    async def model_metadata(
        self, message: pb.ModelMetadataRequest, call: StreamingCall
    ) -> pb.ModelMetadataResponse:
        served = self._find(message.name, message.version)
        if message.version or served.version.name != message.name:
            return describe.metadata(served, (served.version.number,))
        versions = describe.versions_of(message.name, self._dataplane.models.served())
        return describe.metadata(served, versions)

    async def model_config(
        self, message: pb.ModelConfigRequest, call: StreamingCall
    ) -> pb.ModelConfigResponse:
        return describe.config(self._find(message.name, message.version))

    async def model_statistics(
        self, message: pb.ModelStatisticsRequest, call: StreamingCall
    ) -> pb.ModelStatisticsResponse:
        served = self._queries.statistics(message.name, message.version)
        return self._statistics.of(served, are_all=not message.name)

    async def index(
        self, message: pb.RepositoryIndexRequest, call: StreamingCall
    ) -> pb.RepositoryIndexResponse:
        _refuse_repository_name(message.repository_name)
        return describe.index(self._queries.index(message.ready))

    async def load(
        self, message: pb.RepositoryModelLoadRequest, call: StreamingCall
    ) -> pb.RepositoryModelLoadResponse:
        _refuse_repository_name(message.repository_name)
        override = of_message(message.parameters)
        await self._dataplane.models.load(message.model_name, override)
        return pb.RepositoryModelLoadResponse()

    async def unload(
        self, message: pb.RepositoryModelUnloadRequest, call: StreamingCall
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

    async def trace_setting(
        self, message: pb.TraceSettingRequest, call: StreamingCall
    ) -> pb.TraceSettingResponse:
        return trace_setting(message, self._queries)

    async def log_settings(
        self, message: pb.LogSettingsRequest, call: StreamingCall
    ) -> pb.LogSettingsResponse:
        return log_setting(message)

    def _find(self, name: str, version: str) -> ServedVersion:
        return self._queries.get(name, version)


def _refuse_repository_name(name: str) -> None:
    if name:
        raise Unsupported("'repository_name' specification is not supported")
