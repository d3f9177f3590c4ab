"""The doors of a gateway that knows some tokens, on a loop in a thread: `with gated() as doors`.

Whatever role and scopes a token has is in its name: see `TOKENS`.
"""

import asyncio
import hashlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import uvloop

from control.access.scopes import Principal, Role, parse_scopes
from control.desired import DesiredState, TokenGrant
from schedulers.reply import Reply
from schedulers.request import InferRequest
from server.access.authorizer import Authorizer
from server.dataplane import DataPlane
from server.listeners import Listeners
from server.process.lifecycle import Lifecycle
from server.process.loop_lag import LoopLag
from server.routing.table import Target
from server.served_version import ServedVersion
from server.settings.table import Settings
from server.trace.tracing import Tracing
from support.grpc import Shelf, put
from support.server import free_ports, identity_config

PATIENCE_S = 60.0
SCOPES = ("infer:echo", "infer:other", "infer:*", "read", "operate", "admin", "push:echo")
PRINCIPALS = {
    f"{role}_{scope}": Principal(f"token:{role}_{scope}", role, parse_scopes([scope]))
    for role in Role
    for scope in SCOPES
}
"""Token → who shows it: every role with every scope, also where the role is worth less."""


def grant(token: str, role: str = "viewer", *scopes: str, **terms: Any) -> TokenGrant:
    """A grant as the control process would send it; the token's text is its id as well."""
    digest = hashlib.sha256(token.encode()).hexdigest()
    return TokenGrant(digest, token, f"token:{token}", role, scopes or ("infer:*",), **terms)


GRANTS = (
    *(
        grant(token, one.role, *(str(scope) for scope in one.scopes or ()))
        for token, one in PRINCIPALS.items()
    ),
    grant("expired", "admin", "admin", expires=1.0),
)


class NotingDataPlane(DataPlane):
    """Notes on whose behalf each request is made."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.asked_by: list[str | None] = []

    def schedule(
        self, served: ServedVersion, request: InferRequest, target: Target | None
    ) -> Reply:
        self.asked_by.append(None if request.principal is None else request.principal.id)
        return super().schedule(served, request, target)


class Gated:
    """The open doors; ports are of 127.0.0.1."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, dataplane: NotingDataPlane, ports: list[int]
    ) -> None:
        self._loop = loop
        self.dataplane = dataplane
        self.http_port, self.grpc_port, self.metrics_port = ports

    @property
    def grpc(self) -> str:
        return f"127.0.0.1:{self.grpc_port}"

    def on_loop(self, work: Callable[[], Any]) -> Any:
        """`work()`'s result, from the loop's thread."""

        async def run() -> Any:
            return work()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(PATIENCE_S)

    def use(self, *grants: TokenGrant) -> None:
        self.on_loop(lambda: self.dataplane.authorizer.use(grants))


@contextmanager
def gated(
    required: bool = False,
    *grants: TokenGrant,
    aliases: Mapping[str, Mapping[str, int]] | None = None,
    models: tuple[str, ...] = ("echo",),
    configs: tuple[str, ...] = (),
    tracing: Tracing | None = None,
    lifecycle: Lifecycle | None = None,
    **settings: Any,
) -> Iterator[Gated]:
    """Doors on free ports over identity models: those of these names, and those of `configs`."""
    opened: list[Gated] = []
    up, done = threading.Event(), threading.Event()

    async def main() -> None:
        served = [put(text) for text in (*map(identity_config, models), *configs)]
        gate = Authorizer(required)
        gate.use(grants)
        dataplane = NotingDataPlane(
            Shelf(served),
            "modelyard",
            "0.0.0",
            authorizer=gate,
            tracing=tracing,
            lifecycle=lifecycle,
        )
        dataplane.routing.use(DesiredState(aliases=aliases or {}))
        ports = free_ports(3)
        doors = Listeners()
        names = ("http_port", "grpc_port", "metrics_port")
        facts: dict[str, Any] = dict(zip(names, ports, strict=True))
        await doors.open(dataplane, LoopLag(), Settings(**facts, **settings))
        opened.append(Gated(asyncio.get_running_loop(), dataplane, ports))
        up.set()
        await asyncio.to_thread(done.wait)
        await doors.stop(time.monotonic_ns() + 5_000_000_000)
        await doors.stop_metrics()
        for one in served:
            await one.scheduler.close()

    def run() -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main())

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert up.wait(60), "the doors did not open"
        yield opened[0]
    finally:
        done.set()
        thread.join(60)
        assert not thread.is_alive(), "the doors did not close"
