"""The metrics port: one page in Prometheus' text format, made when it is asked for."""

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from typing import Any

from server.health.monitor import HealthRow
from server.metrics.custom import CustomMetrics
from server.metrics.drift import Scores, drift_text, unscored
from server.metrics.exposition import LoopLagSource, render
from server.metrics.machine_usage import MachineUsage
from server.metrics.version_families import VersionTexts
from server.routing.routing import Routing
from server.served_version import Models
from server.settings.metrics_config import MetricsConfig
from server.trace.tracing import Tracing

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
_DEFAULT = MetricsConfig()

HealthRows = Callable[[float], Iterable[HealthRow]]
"""How the versions are at a moment, in seconds since the epoch."""


def unjudged(_now: float) -> Iterable[HealthRow]:
    """Where nobody says."""
    return ()


class MetricsApp:
    """A raw ASGI application: GET /metrics, and nothing else."""

    def __init__(  # noqa: PLR0913 - one argument for each thing that a scrape shows
        self,
        models: Models,
        lag: LoopLagSource,
        tracing: Tracing | None = None,
        shown: MetricsConfig = _DEFAULT,
        routing: Routing | None = None,
        health: HealthRows = unjudged,
        scores: Scores = unscored,
        custom: CustomMetrics | None = None,
    ) -> None:
        self._scores = scores
        self._models = models
        self._custom = custom or CustomMetrics()
        self._routing = routing
        self._health = health
        self._tracing = tracing
        self._lag = lag
        self._machine = MachineUsage()
        self._texts = VersionTexts(shown)

    async def __call__(
        self,
        scope: Mapping[str, Any],
        receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
        send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ) -> None:
        if scope["type"] != "http":
            return
        if scope["path"] != "/metrics":
            status, body = 404, b"Not Found; metrics are at /metrics\n"
        elif scope["method"] not in ("GET", "HEAD"):
            status, body = 405, b"Method Not Allowed; use GET\n"
        else:
            status = 200
            health = self._health(time.time())
            await self._custom.collect()
            body = render(
                self._models, self._lag, self._machine, self._tracing, self._texts, self._routing,
                health,
            ) + drift_text(self._scores())  # fmt: skip
            body += "".join(f"{line}\n" for line in self._custom.lines()).encode()
        headers = [(b"content-type", CONTENT_TYPE), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        if scope["method"] == "HEAD":
            body = b""
        await send({"type": "http.response.body", "body": body})
