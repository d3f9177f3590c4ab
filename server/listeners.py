"""The listeners of one server: opened before the models load, closed before they go.

`server.app` opens and stops them; requests go from here to `server.dataplane`.
"""

import asyncio
import os
import time
from dataclasses import dataclass, field

from control.authentication.forwarded import networks
from server import tls
from server.access.sites import SitePolicy, site_policy
from server.buffers import BufferBudget
from server.codec.forwarding import HeaderForwarding
from server.dataplane import DataPlane
from server.fleet.confine import template_sandbox
from server.grpc import service as grpc_service
from server.grpc.service import GrpcPort
from server.http1 import listener
from server.http1.connection import ConnectionLimits
from server.http1.listener import HttpListener
from server.listen_address import ListenAddress, grpc_address
from server.logs.access import AccessLog
from server.metrics.app import HealthRows, MetricsApp, unjudged
from server.metrics.custom import CustomMetrics
from server.metrics.drift import Scores, unscored
from server.openai.endpoints import OpenAIEndpoints
from server.openai.openapi_operations import LANGUAGE_OPERATIONS
from server.process.loop_lag import LoopActivity, LoopLag
from server.rest.app import rest_app
from server.rest.endpoint import BodyLimits
from server.rest.inference_listener import RestMiddleware, guarded, start_inference
from server.rest.middleware import AuthorizationMiddleware
from server.settings import metrics_config
from server.settings.listeners import UNIX, is_loopback
from server.settings.restricted import read_locks
from server.settings.table import Settings
from server.tls import UnusableCertificate


class CannotListen(Exception):
    """A port cannot be opened; names address, port, reason and flag."""


@dataclass(slots=True)
class Listeners:
    """The open listeners, and their addresses by name."""

    rest: HttpListener | None = None
    grpc: GrpcPort | None = None
    metrics: HttpListener | None = None
    access_log: AccessLog | None = None
    openai: OpenAIEndpoints | None = None
    addresses: dict[str, str] = field(default_factory=dict)

    async def open(
        self,
        dataplane: DataPlane,
        lag: LoopLag,
        settings: Settings,
        health: HealthRows = unjudged,
        scores: Scores = unscored,
        custom: CustomMetrics | None = None,
    ) -> None:
        """Open what the settings allow. Raises CannotListen; `stop` closes what is open then."""
        self.access_log = _access_log(settings)
        budget = BufferBudget(settings.buffer_bytes)
        if settings.allow_http:
            self.rest, self.openai = await _rest(dataplane, settings, self.access_log, budget, lag)
            self.addresses["REST"] = self.rest.url
        if settings.allow_grpc:
            try:
                self.grpc = await grpc_service.start(
                    dataplane, settings, self.access_log, budget, lag
                )
            except UnusableCertificate as error:
                raise CannotListen(f"cannot listen for gRPC: {error}") from error
            except OSError as error:
                raise CannotListen(error.strerror or str(error)) from error
            self.addresses["gRPC"] = grpc_address(settings.grpc_address, self.grpc.port)
        if settings.allow_metrics:
            self.metrics = await _metrics(dataplane, lag, settings, health, scores, custom)
            self.addresses["metrics"] = self.metrics.url + "/metrics"

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
        if self.openai is not None:
            await self.openai.close()
        if self.access_log is not None:
            await asyncio.to_thread(self.access_log.close)

    async def stop_metrics(self) -> None:
        if self.metrics is not None:
            await self.metrics.stop(time.monotonic_ns())


async def _rest(
    dataplane: DataPlane,
    settings: Settings,
    log: AccessLog | None,
    budget: BufferBudget,
    activity: LoopActivity,
) -> tuple[HttpListener, OpenAIEndpoints]:
    limits = BodyLimits(settings.http_max_input_size, settings.http_max_json_depth)
    wire = ConnectionLimits(
        settings.http_max_header_size,
        settings.http_max_chunk_count,
        settings.http_keep_alive_secs,
        settings.http_stall_secs,
        settings.http_max_input_size,
        budget,
        activity,
    )
    pattern = settings.http_header_forward_pattern
    forwarding = HeaderForwarding(pattern) if pattern else None
    openai = OpenAIEndpoints(dataplane, limits, forwarding, template_sandbox(settings))
    app = rest_app(dataplane, limits, forwarding, openai.routes(), LANGUAGE_OPERATIONS)
    address, port = settings.http_address, settings.http_port
    try:
        place = ListenAddress(
            address,
            port,
            tls.http_context(settings),
            settings.reuse_port or settings.reuse_http_port,
        )
        locks = read_locks(settings.http_restricted_api)
        middleware = RestMiddleware(locks, _sites(address, settings), forwarding, log)
        opened = await start_inference(app, dataplane, limits, wire, place, middleware)
        return opened, openai
    except UnusableCertificate as error:
        raise CannotListen(f"cannot listen for REST: {error}") from error
    except OSError as error:
        raise _cannot_listen("REST", address, port, "--http-port", error) from error


async def _metrics(
    dataplane: DataPlane,
    lag: LoopLag,
    settings: Settings,
    health: HealthRows,
    scores: Scores,
    custom: CustomMetrics | None,
) -> HttpListener:
    shown = metrics_config.parse(settings.metrics_config, settings.allow_cpu_metrics)
    metrics = MetricsApp(
        dataplane.models,
        lag,
        dataplane.tracing,
        shown,
        dataplane.routing,
        health,
        scores,
        custom,
    )
    address, port = settings.metrics_address, settings.metrics_port
    app = guarded(AuthorizationMiddleware(metrics, dataplane), _sites(address, settings))
    try:
        return await listener.start(
            app, ListenAddress(address, port, reuse_port=settings.reuse_port)
        )
    except OSError as error:
        raise _cannot_listen("metrics", address, port, "--metrics-port", error) from error


def _sites(address: str, settings: Settings) -> SitePolicy:
    """A Unix socket has no name that a page could take: any Host is right there."""
    by_tcp = is_loopback(address) and not address.startswith(UNIX)
    return site_policy(address, by_tcp, settings.allowed_hosts, settings.http_cors_allow_origin)


def _access_log(settings: Settings) -> AccessLog | None:
    if not settings.access_log:
        return None
    try:
        proxies = networks(settings.trusted_proxies)
        return AccessLog(settings.access_log, settings.access_log_sample, proxies)
    except OSError as error:
        raise CannotListen(
            f"the access log cannot be written to {settings.access_log}: "
            f"{error.strerror or error}; name another file with --access-log"
        ) from error


def _cannot_listen(what: str, address: str, port: int, flag: str, error: OSError) -> CannotListen:
    reason = os.strerror(error.errno) if error.errno else error.strerror or str(error)
    if address.startswith(UNIX):
        flag = flag.replace("-port", "-address")
        return CannotListen(
            f"cannot listen for {what} on {address}: {reason}; choose another path with {flag}"
        )
    return CannotListen(
        f"cannot listen for {what} on {address} port {port}: {reason}; "
        f"choose another port with {flag}"
    )
