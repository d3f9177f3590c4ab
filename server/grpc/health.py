"""grpc.health.v1: the server's readiness in the form load balancers and probes ask for.

`HealthStub.Check` answers once; `Watch` writes the state and every change of it.
"""

import asyncio

from grpc_health.v1 import health_pb2

from server.dataplane import DataPlane
from server.errors import UnknownModel
from server.http2.calls.streaming_call import StreamingCall
from server.model_queries import ModelQueries

INFERENCE = "inference.GRPCInferenceService"
_SERVICES = ("", INFERENCE)
_LOOK_EVERY_S = 0.25


class Health:
    """Readiness of the server; `closing` ends the watches."""

    def __init__(self, dataplane: DataPlane, closing: asyncio.Event) -> None:
        self._queries = ModelQueries(dataplane)
        self._closing = closing

    async def check(
        self, message: health_pb2.HealthCheckRequest, call: StreamingCall
    ) -> health_pb2.HealthCheckResponse:
        if message.service not in _SERVICES:
            raise UnknownModel(
                f"unknown service '{message.service}'; this server reports on '' and '{INFERENCE}'"
            )
        return self._response()

    async def watch(self, message: health_pb2.HealthCheckRequest, call: StreamingCall) -> None:
        """Write the state now and whenever it changes, until the client or the server goes.

        There is no bell for readiness, which is computed: it is looked at four times a second.
        """
        is_service = message.service in _SERVICES
        unknown = health_pb2.HealthCheckResponse(
            status=health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
        )
        last = None
        while True:
            now = self._response() if is_service else unknown
            if now != last:
                await call.write(now.SerializeToString())
                last = now
            if self._closing.is_set():
                return
            await self._pause()

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(_LOOK_EVERY_S):
                await self._closing.wait()
        except TimeoutError:
            return

    def _response(self) -> health_pb2.HealthCheckResponse:
        ready = self._queries.ready() and not self._closing.is_set()
        kind = health_pb2.HealthCheckResponse
        return kind(status=kind.SERVING if ready else kind.NOT_SERVING)
