"""The listeners of one server: opened before the models load, closed before they go.

`server.app` opens and stops them; requests go from here to `server.dataplane`.
"""

import asyncio
import time
from dataclasses import dataclass, field

from server import grpc_door, http
from server.dataplane import DataPlane
from server.grpc_door import GrpcDoor
from server.http import Listener
from server.infer_http import Limits
from server.loop_lag import LoopLag
from server.metrics import MetricsApp
from server.rest import rest_app
from server.settings import Settings


class CannotListen(Exception):
    """A port cannot be opened; names address, port, reason and flag."""


@dataclass(slots=True)
class Doors:
    """The open listeners, and their addresses by name."""

    rest: Listener | None = None
    grpc: GrpcDoor | None = None
    metrics: Listener | None = None
    addresses: dict[str, str] = field(default_factory=dict)

    async def open(self, dataplane: DataPlane, lag: LoopLag, settings: Settings) -> None:
        """Open what the settings allow. Raises CannotListen; `stop` closes what is open then."""
        if settings.allow_http:
            self.rest = await _rest(dataplane, settings)
            self.addresses["REST"] = _url(settings.http_address, self.rest.port)
        if settings.allow_grpc:
            try:
                self.grpc = await grpc_door.start(dataplane, settings)
            except OSError as error:
                raise CannotListen(error.strerror or str(error)) from error
            self.addresses["gRPC"] = f"{_host(settings.grpc_address)}:{self.grpc.port}"
        if settings.allow_metrics:
            self.metrics = await _metrics(dataplane, lag, settings)
            self.addresses["metrics"] = (
                _url(settings.metrics_address, self.metrics.port) + "/metrics"
            )

    async def stop(self, until_ns: int) -> None:
        """Accept nothing new; return when what is inside has been answered, or at `until_ns`.

        Metrics stay open: see `stop_metrics`.
        """
        stops = []
        if self.rest is not None:
            stops.append(self.rest.stop(until_ns))
        if self.grpc is not None:
            stops.append(self.grpc.stop(max(0.0, (until_ns - time.monotonic_ns()) / 1e9)))
        await asyncio.gather(*stops)

    async def stop_metrics(self) -> None:
        if self.metrics is not None:
            await self.metrics.stop(time.monotonic_ns())


async def _rest(dataplane: DataPlane, settings: Settings) -> Listener:
    limits = Limits(settings.http_max_input_size, settings.http_max_json_depth)
    app = rest_app(dataplane, settings.http_max_json_depth)
    address, port = settings.http_address, settings.http_port
    try:
        return await http.start_inference(app, dataplane, limits, address, port)
    except OSError as error:
        raise _cannot_listen("REST", address, port, "--http-port", error) from error


async def _metrics(dataplane: DataPlane, lag: LoopLag, settings: Settings) -> Listener:
    app = MetricsApp(dataplane.models, lag)
    address, port = settings.metrics_address, settings.metrics_port
    try:
        return await http.start(app, address, port)
    except OSError as error:
        raise _cannot_listen("metrics", address, port, "--metrics-port", error) from error


def _cannot_listen(what: str, address: str, port: int, flag: str, error: OSError) -> CannotListen:
    return CannotListen(
        f"cannot listen for {what} on {address} port {port}: {error.strerror or error}; "
        f"choose another port with {flag}"
    )


def _url(address: str, port: int) -> str:
    return f"http://{_host(address)}:{port}"


def _host(address: str) -> str:
    return f"[{address}]" if ":" in address else address
