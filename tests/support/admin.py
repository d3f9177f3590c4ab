"""The control API behind real sockets, on a thread of its own: `with api(database, folder) as a`.

`a.ask("GET", "/me", token=...)` talks over TCP, `a.local("GET", "/me")` over the Unix socket.
"""

import asyncio
import base64
import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from control.access.peer import PeerProtocol
from control.access.rate_limits import LoginThrottle, RateLimiter
from control.access.tokens import create_token
from control.access.users import create_user
from control.api.app import admin_app
from control.authentication.hosts import known_hosts
from control.events.event_notifier import EventNotifier
from control.events.history import last_event
from control.gateways.peers import PeerGateways
from control.gateways.queries import (
    CrashQuery,
    LoadedQuery,
    LogQuery,
    Query,
    QueryAnswer,
    RequestsQuery,
    ResidencyQuery,
    RunningQuery,
)
from control.services import ControlServices, ServerFacts
from control.sql.database import SYSTEM, Database
from control.views import SettingView
from server import VERSION
from server.desired.instances import crashes, loaded, running
from server.fleet.memory.grants import MemoryAllocator
from server.fleet.residency.residency import Residency
from server.history.history import RequestHistory
from server.http1.connection import Http1Connection
from server.http1.listener import start
from server.listen_address import ListenAddress
from server.logs.recent import RecentLines
from server.routing.explain import explain
from server.samples.samples import Samples
from server.settings.listeners import UNIX

START_SECS, ANSWER_SECS = 20.0, 20.0
PASSWORD = "correct horse battery"


@dataclass
class Answered:
    """A response; `json` decodes its body."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def text(self) -> str:
        return self.body.decode(errors="replace")

    @property
    def code(self) -> str:
        """The envelope's code."""
        return str(self.json["error"]["code"])

    @property
    def message(self) -> str:
        return str(self.json["error"]["message"])


@dataclass
class Api:
    """A running API. `bells` counts how often the deployer was rung; `admin` is for a test's own
    headers, `rollout` for the id of one it has begun."""

    database: Database
    services: ControlServices
    port: int
    socket_path: Path
    loop: asyncio.AbstractEventLoop
    bells: list[int] = field(default_factory=list)
    admin: dict[str, str] = field(default_factory=dict)
    rollout: str = ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        token: str = "",
        headers: dict[str, str] | None = None,
    ) -> Answered:
        """Over TCP; `path` is below /api/v1 unless it begins with two slashes."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_SECS)
        said = ({"Authorization": f"Bearer {token}"} if token else {}) | (headers or {})
        return _ask(connection, method, path, body, said)

    def local(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> Answered:
        """Over the Unix socket, as the server's own user."""
        connection = http.client.HTTPConnection("localhost", timeout=ANSWER_SECS)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(ANSWER_SECS)
        connection.sock.connect(str(self.socket_path))
        return _ask(connection, method, path, body, headers or {})

    def user(self, name: str, role: str) -> str:
        """Make a user with `PASSWORD`; the value of its Authorization header."""
        with self.database.change(SYSTEM) as tx:
            create_user(tx, name, role, PASSWORD)
        return basic(name, PASSWORD)

    def token(self, user: str, *scopes: str, **terms: Any) -> str:
        """The text of a new token of a user."""
        with self.database.change(SYSTEM) as tx:
            return create_token(tx, user, "test", scopes, **terms).text


def basic(name: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


@contextmanager
def api(database: Database, folder: Path, **changes: Any) -> Iterator[Api]:
    """Serve the API over `database`; `changes` are fields of Services."""
    started: list[Api] = []
    ready, stop = threading.Event(), threading.Event()
    failed: list[BaseException] = []

    def run() -> None:
        try:
            asyncio.run(_serve(database, folder, changes, started, ready, stop))
        except BaseException as error:
            failed.append(error)
            ready.set()
            raise

    thread = threading.Thread(target=run, name="api")
    thread.start()
    try:
        assert ready.wait(START_SECS)
        assert not failed, failed
        yield started[0]
    finally:
        stop.set()
        thread.join(START_SECS)
        assert not thread.is_alive()


async def _serve(
    database: Database,
    folder: Path,
    changes: dict[str, Any],
    started: list[Api],
    ready: threading.Event,
    stop: threading.Event,
) -> None:
    build = changes.pop("build", admin_app)
    commits = EventNotifier(lambda: _last_event(database), changes.pop("poll_s", 0.5))
    database.on_commit(commits.committed)
    bells: list[int] = []
    samples, history = Samples(), RequestHistory()

    async def ask_gateway(query: Query) -> QueryAnswer:
        match query:
            case RunningQuery():
                return running((), MemoryAllocator({}), None, query.model)
            case CrashQuery():
                return crashes(())
            case LoadedQuery():
                return loaded((), query.model)
            case RequestsQuery():
                return history.answer(query)
            case ResidencyQuery():
                return Residency(None, 0, 0.0).answer(query)
            case LogQuery():
                return RecentLines().answer(query)
            case _:
                return samples.answer(query)

    own = changes.pop("ask_gateway", ask_gateway)
    peers = PeerGateways(database, "server1", "boot1", own)
    services = ControlServices(
        database=database,
        commits=commits,
        facts=changes.pop("facts", facts(folder)),
        rates=RateLimiter(),
        failures=LoginThrottle(),
        archive=changes.pop("archive", lambda out: out.write(b"a tar")),
        explain=explain,
        deployable=lambda: bells.append(1),
        url=lambda: "http://127.0.0.1:8003",
        **{"ask_gateway": own, "ask_servers": peers.ask, **changes},
    )
    app: Any = build(services)
    path = folder / "api.sock"
    tcp = await start(app, ListenAddress("127.0.0.1", 0))
    unix = await start(app, ListenAddress(f"{UNIX}{path}", 0), _LocalConnection)
    loop = asyncio.get_running_loop()
    started.append(Api(database, services, tcp.port, path, loop, bells))
    ready.set()
    await asyncio.to_thread(stop.wait)
    await commits.close()
    until_ns = time.monotonic_ns() + int(START_SECS * 1e9)
    await asyncio.gather(tcp.stop(until_ns), unix.stop(until_ns))


class _LocalConnection(PeerProtocol, Http1Connection):
    """As the control process has them on its own socket."""


def facts(folder: Path, **changes: Any) -> ServerFacts:
    """Facts of a test's server, whose store lies in `folder`."""
    usual: dict[str, Any] = {
        "server_id": "server1",
        "version": VERSION,
        "store": folder / "store",
        "model_folders": (folder / "models",),
        "public_url": "",
        "hosts": known_hosts("127.0.0.1", ""),
        "settings": (SettingView("http_port", "8000", "default", "Port of the REST listener."),),
    }
    return ServerFacts(**usual | changes)


def _last_event(database: Database) -> int:
    with database.reading() as session:
        return last_event(session)


def _ask(
    connection: http.client.HTTPConnection,
    method: str,
    path: str,
    body: Any,
    headers: dict[str, str],
) -> Answered:
    try:
        raw = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        kind = {} if raw is None else {"Content-Type": "application/json"}
        target = path[1:] if path.startswith("//") else "/api/v1" + path
        connection.request(method, target, raw, kind | headers)
        response = connection.getresponse()
        found = {name.lower(): value for name, value in response.getheaders()}
        return Answered(response.status, found, response.read())
    finally:
        connection.close()


Made = Callable[..., Api]
