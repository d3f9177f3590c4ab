"""The gRPC door: Triton's `inference.GRPCInferenceService` and `grpc.health.v1`.

`server.http2` carries the calls. A request comes off the wire as bytes, is parsed
(`server.grpc.calls`), decoded (`server.codec.grpc_infer`) and handed to `server.dataplane`; the
Reply comes back the same way. Methods that are not in the table are refused as UNIMPLEMENTED.
"""

import asyncio
import os
import time
from functools import partial
from typing import NamedTuple

from google.protobuf.message import Message
from grpc_health.v1 import health_pb2
from tritonclient.grpc import service_pb2 as pb

from control.access.scopes import Action
from schedulers.reply import Reply
from schedulers.request import InferRequest
from server import describe
from server.access.asks import Ask
from server.access.holder import Holder
from server.codec.form import PLAIN, Asked, Form
from server.codec.forwarding import Forwarding, forward
from server.codec.grpc_infer import decode, encode
from server.dataplane import DataPlane
from server.errors import InvalidRequest, Unsupported
from server.grpc.admission import allowed, authorise, holder_of
from server.grpc.calls import Answer as Ours
from server.grpc.calls import immediate, parse, refuse, server_stream, stream, unary
from server.grpc.heads import Heads
from server.grpc.health import INFERENCE, Health
from server.grpc.porch import guard_of, kinds_of, note, text_metadata
from server.grpc.routed import name_arm, picked
from server.grpc.shared_memory import shared_memory_methods
from server.grpc.stream import InferStream
from server.grpc.trace import Answer, Followed, log_setting, submit_followed, trace_setting
from server.http2.call import Call
from server.http2.conversation import Conversation
from server.http2.listener import Listener, listen
from server.http2.service import PLAIN_KINDS, Methods, Streaming, Unary
from server.logs.access import AccessLog
from server.overrides import of_message
from server.place import Place
from server.routing.table import Target
from server.served import Served
from server.settings.doors import UNIX
from server.settings.table import Settings
from server.signature import Signature
from server.statistics import statistics
from server.tls import grpc_context


async def start(
    dataplane: DataPlane, settings: Settings, log: AccessLog | None = None
) -> "GrpcDoor":
    """Listen on `grpc_address`:`grpc_port` (0: any free port).

    Raises OSError naming address, port and flag when the port cannot be had, UnusableCertificate.
    """
    address, port = settings.grpc_address, settings.grpc_port
    shared = settings.reuse_port or settings.reuse_grpc_port
    place = Place(address, port, grpc_context(settings), shared)
    pattern = settings.grpc_header_forward_pattern
    service = _Service(dataplane, Forwarding(pattern) if pattern else None)
    kinds = PLAIN_KINDS if log is None else kinds_of(log)
    limit, guard = settings.grpc_max_message_size, guard_of(settings, dataplane)
    try:
        listener = await listen(service.methods, place, limit, guard, kinds)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise OSError(error.errno, _refusal(address, port, reason)) from error
    return GrpcDoor(listener, service)


class GrpcDoor:
    """An open gRPC port."""

    def __init__(self, listener: Listener, service: "_Service") -> None:
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


class _Admitted(NamedTuple):
    """A request as the version takes it that will answer; `target` is whom a route picked."""

    served: Served
    request: InferRequest
    form: Form
    target: Target | None = None


class _Service:
    """What answers each method; `methods` is the table, by a call's full path."""

    def __init__(self, dataplane: DataPlane, forwarding: Forwarding | None = None) -> None:
        self._dataplane = dataplane
        self._forwarding = forwarding
        self._closing = asyncio.Event()
        self._streams: set[InferStream] = set()
        self._heads = Heads()
        health = Health(dataplane, self._closing)
        self.methods: Methods = {
            f"/{INFERENCE}/{name}": method for name, method in self._inference().items()
        } | {
            "/grpc.health.v1.Health/Check": unary(health_pb2.HealthCheckRequest, health.check),
            "/grpc.health.v1.Health/Watch": server_stream(
                health_pb2.HealthCheckRequest, health.watch
            ),
        }

    def _inference(self) -> dict[str, Unary | Streaming]:
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
            "ModelInfer": immediate(self.infer),
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

    def infer(self, data: bytes, call: Call) -> None:
        """Answered from the Reply's callback; a client that goes away cancels the request."""
        arrived_ns = time.monotonic_ns()
        holder = holder_of(call) if call.admission is not None else None
        served, request, form, target = self._known(
            data, arrived_ns, call, holder
        ) or self._decoded(data, arrived_ns, call, holder)
        if holder is not None:
            request.principal = holder.principal.id
        request.deadline_ns = call.deadline_ns
        if self._forwarding is not None:
            forward(request, self._forwarding, text_metadata(call.head))
        note(call, request, target.label if target is not None else "")
        answer: Answer = partial(_answer, call, served.signature, form, request)
        if self._dataplane.tracing.on:
            known = Followed(served, request, target)
            reply, answer = submit_followed(self._dataplane, known, call, answer)
        else:
            reply = self._dataplane.submit(served, request, target)
        call.on_cancel = reply.cancel
        reply.then(answer)

    def _known(
        self, data: bytes, arrived_ns: int, call: Call, holder: Holder | None
    ) -> _Admitted | None:
        head = self._heads.find(data)
        if head is None:
            return None
        if holder is not None:
            authorise(self._dataplane, holder, Ask(Action.INFER, head.model))
        route, target = self._dataplane.route_of(head.model, head.version), None
        if route is None:
            served = self._dataplane.find(head.model, head.version)
        else:  # such a message has no parameters
            target = picked(self._dataplane, route, call, holder, None)
            name_arm(call, target)
            served = self._dataplane.find_target(target)
        known = head.of(served.signature)
        if known is None:
            return None
        return _Admitted(served, known.request(data, arrived_ns), PLAIN, target)

    def _decoded(
        self, data: bytes, arrived_ns: int, call: Call, holder: Holder | None
    ) -> _Admitted:
        message = parse(pb.ModelInferRequest, data)
        name, version = message.model_name, message.model_version
        if holder is not None:
            authorise(self._dataplane, holder, Ask(Action.INFER, name))
        route = self._dataplane.route_of(name, version)
        if route is not None:
            target = picked(self._dataplane, route, call, holder, message)
            admitted = self._routed(message, arrived_ns, call, target)
        else:
            served = self._dataplane.find(name, version)
            admitted = _Admitted(served, *self._decode(message, served, arrived_ns))
        if admitted.form is PLAIN:
            signature = admitted.served.signature
            self._heads.learn(data, message, admitted.request, signature)
        return admitted

    def _routed(
        self, message: pb.ModelInferRequest, arrived_ns: int, call: Call, target: Target
    ) -> _Admitted:
        call.trailers = b""
        name_arm(call, target)
        served = self._dataplane.find_target(target)
        request, form = self._decode(message, served, arrived_ns)
        if request.sequence is not None:
            stays = self._dataplane.routing.stay(target, request.sequence)
            if stays.key != target.key:
                call.trailers = b""
                name_arm(call, stays)
                served = self._dataplane.find_target(stays)
                request, form = self._decode(message, served, arrived_ns)
            target = stays
        return _Admitted(served, request, form, target)

    def _decode(self, message: pb.ModelInferRequest, served: Served, arrived_ns: int) -> Asked:
        if served.signature.decoupled:
            raise Unsupported(
                "ModelInfer RPC doesn't support models with decoupled transaction policy"
            )
        return decode(message, served.signature, arrived_ns, self._dataplane.shared_memory)

    async def infer_stream(self, call: Conversation) -> None:
        opened = InferStream(self._dataplane, call, self._forwarding)
        self._streams.add(opened)
        try:
            await opened.run()
        finally:
            self._streams.discard(opened)

    async def live(self, message: object, call: Conversation) -> pb.ServerLiveResponse:
        return pb.ServerLiveResponse(live=True)

    async def ready(self, message: object, call: Conversation) -> pb.ServerReadyResponse:
        return pb.ServerReadyResponse(ready=self._dataplane.ready())

    async def model_ready(
        self, message: pb.ModelReadyRequest, call: Conversation
    ) -> pb.ModelReadyResponse:
        return pb.ModelReadyResponse(
            ready=self._dataplane.model_ready(message.name, message.version)
        )

    async def metadata(self, message: object, call: Conversation) -> pb.ServerMetadataResponse:
        dataplane = self._dataplane
        offers_cuda = dataplane.shared_memory.offers_cuda
        return describe.server_metadata(dataplane.name, dataplane.version, offers_cuda)

    async def model_metadata(
        self, message: pb.ModelMetadataRequest, call: Conversation
    ) -> pb.ModelMetadataResponse:
        served = self._named(message.name, message.version)
        if message.version or served.version.name != message.name:
            return describe.metadata(served, (served.version.number,))
        versions = describe.versions_of(message.name, self._dataplane.models.served())
        return describe.metadata(served, versions)

    async def model_config(
        self, message: pb.ModelConfigRequest, call: Conversation
    ) -> pb.ModelConfigResponse:
        return describe.config(self._named(message.name, message.version))

    async def model_statistics(
        self, message: pb.ModelStatisticsRequest, call: Conversation
    ) -> pb.ModelStatisticsResponse:
        return statistics(self._dataplane.statistics(message.name, message.version))

    async def index(
        self, message: pb.RepositoryIndexRequest, call: Conversation
    ) -> pb.RepositoryIndexResponse:
        _refuse_repository_name(message.repository_name)
        return describe.index(self._dataplane.index(message.ready))

    async def load(
        self, message: pb.RepositoryModelLoadRequest, call: Conversation
    ) -> pb.RepositoryModelLoadResponse:
        _refuse_repository_name(message.repository_name)
        override = of_message(message.parameters)
        await self._dataplane.models.load(message.model_name, override)
        return pb.RepositoryModelLoadResponse()

    async def unload(
        self, message: pb.RepositoryModelUnloadRequest, call: Conversation
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
        self, message: pb.TraceSettingRequest, call: Conversation
    ) -> pb.TraceSettingResponse:
        return trace_setting(message, self._dataplane)

    async def log_settings(
        self, message: pb.LogSettingsRequest, call: Conversation
    ) -> pb.LogSettingsResponse:
        return log_setting(message)

    def _named(self, name: str, version: str) -> Served:
        return self._dataplane.get(name, version)


def _answer(
    call: Call, signature: Signature, form: Form, request: InferRequest, reply: Reply
) -> None:
    if call.over:
        return
    try:
        message = encode(reply.result(), signature, form).SerializeToString()
    except Exception as error:  # noqa: BLE001 - the porch: refuse() logs what is our fault
        refuse(call, error, f"request '{request.id}' to model '{request.model}'")
    else:
        call.finish(message)


def _refuse_repository_name(name: str) -> None:
    if name:
        raise Unsupported("'repository_name' specification is not supported")
