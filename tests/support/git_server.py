"""git and Git LFS over HTTP as the admin port has them, on a thread of their own, and clients.

`with git_server(folder, tables) as server` listens on a free port; `server.push(...)` and
`server.clone(...)` run the stock client with a token, `server.raw(...)` sends bytes as they are.
The hooks' decision is the principal's right to each ref, and `server.decided` keeps what was asked.
"""

import asyncio
import http.client
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from control.access.rate_limits import LoginThrottle, RateLimiter
from control.access.scopes import Action, allows, why_not
from control.access.tokens import create_token
from control.access.users import create_user
from control.deployments.repositories import change_repository, create_repository
from control.events.event_notifier import EventNotifier
from control.git.http import GitApp
from control.git.push.pre_receive import PushContext
from control.git.push.push_keys import PushKeys
from control.repository_settings import RepositorySettings
from control.services import ControlServices
from control.sql.database import SYSTEM, Database
from repository.git import bare
from repository.git.bare import BareRepository
from repository.git.hooks.hook import HookRequest
from repository.git.hooks.listener import HookListener, Say
from repository.git.receive import ReceiveTiming
from server.http1.connection import ConnectionLimits, Http1Connection
from server.http1.listener import start
from server.listen_address import ListenAddress
from server.routing.explain import explain
from support.admin import PASSWORD, Answered, basic, facts
from support.git_http import DEADLINE_SECS, client, git, short_folder

SECRET = bytes(range(32))
EVERYTHING = ("push:*", "read")

LFS_SETTINGS = {
    "filter.lfs.clean": "git-lfs clean -- %f",
    "filter.lfs.smudge": "git-lfs smudge -- %f",
    "filter.lfs.process": "git-lfs filter-process",
    "filter.lfs.required": "true",
    "lfs.transfer.maxretries": "2",
    "lfs.transfer.maxretrydelay": "1",
}

needs_lfs = pytest.mark.skipif(
    shutil.which("git-lfs") is None and "CI" not in os.environ,
    reason="there is no git-lfs on the PATH; apt-get install git-lfs",
)


@dataclass
class Served:
    """A running server. `requests` has a line per request: verb, path, query, range, status.
    `meanwhile` happens while a push is being decided on."""

    store: Path
    database: Database
    keys: PushKeys
    port: int
    loop: asyncio.AbstractEventLoop
    requests: list[str] = field(default_factory=list)
    decided: list[tuple[PushContext, HookRequest]] = field(default_factory=list)
    services: Any = None
    meanwhile: Callable[[], object] = lambda: None

    def url(self, name: str, port: int = 0) -> str:
        return f"http://127.0.0.1:{port or self.port}/git/{name}.git"

    def bare(self, name: str) -> BareRepository:
        return bare.find(self.store, name)

    def create(self, name: str, settings: RepositorySettings | None = None) -> str:
        """Make a repository; its name."""
        settings = settings or RepositorySettings()
        with self.database.change(SYSTEM) as tx:
            create_repository(tx, name, settings)
        limits = bare.ReceiveLimits(settings.budgets.max_pack_bytes)
        made = bare.create(self.store, name, limits)
        asyncio.run_coroutine_threadsafe(made, self.loop).result(DEADLINE_SECS)
        return name

    def change(self, name: str, settings: RepositorySettings) -> None:
        with self.database.change(SYSTEM) as tx:
            change_repository(tx, name, settings)

    def user(self, name: str, role: str) -> str:
        with self.database.change(SYSTEM) as tx:
            create_user(tx, name, role, PASSWORD)
        return name

    def token(self, user: str, *scopes: str, **terms: Any) -> str:
        with self.database.change(SYSTEM) as tx:
            named = f"test-{time.monotonic_ns()}"
            return create_token(tx, user, named, list(scopes or EVERYTHING), **terms).text

    def push(self, work: Path, name: str, token: str, *refs: str) -> subprocess.CompletedProcess:
        """The client run to its end, whatever that is."""
        arguments = ("push", self.url(name), *(refs or ("main",)))
        return client(work, *arguments, **credentials(token))

    def clone(self, folder: Path, name: str, token: str, port: int = 0, **variables: str) -> Any:
        """Into `folder`; the client run to its end."""
        arguments = ("clone", "--quiet", self.url(name, port), str(folder))
        return client(folder.parent, *arguments, **credentials(token), **variables)

    def ask(
        self,
        method: str,
        path: str,
        token: str = "",
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> Answered:
        """`path` is below /git/; `token` is sent as a password."""
        said = {"Authorization": basic("x", token)} if token else {}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_SECS)
        with closing(connection):
            connection.request(method, f"/git/{path}", body, said | (headers or {}))
            return _answered(connection.getresponse())

    @contextmanager
    def connected(self) -> Iterator[socket.socket]:
        with socket.create_connection(("127.0.0.1", self.port), DEADLINE_SECS) as connection:
            yield connection

    def raw(self, request: bytes) -> Answered:
        """The answer to bytes as they are."""
        with self.connected() as connection:
            connection.sendall(request)
            return read_answer(connection)


def read_answer(connection: socket.socket) -> Answered:
    """One answer; the connection stays open."""
    with http.client.HTTPResponse(connection) as response:
        response.begin()
        return _answered(response)


def _answered(response: http.client.HTTPResponse) -> Answered:
    found = {name.lower(): value for name, value in response.getheaders()}
    return Answered(response.status, found, response.read())


def read_to_end(connection: socket.socket) -> bytes:
    answer = b""
    while chunk := connection.recv(65536):
        answer += chunk
    return answer


def eventually(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + DEADLINE_SECS
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def credentials(token: str, user: str = "x") -> dict[str, str]:
    """An environment in which git and git-lfs give this user and password, and filter for LFS."""
    settings = {
        "credential.helper": (
            '!f() { test "$1" = get && echo "username=$MY_USER" && echo "password=$MY_TOKEN"; }; f'
        ),
        **LFS_SETTINGS,
    }
    packed = {"GIT_CONFIG_COUNT": str(len(settings)), "MY_USER": user, "MY_TOKEN": token}
    for number, (name, value) in enumerate(settings.items()):
        packed |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
    return packed


def lfs_work_tree(folder: Path, files: dict[str, bytes]) -> Path:
    """A client's repository with `*.onnx` in Git LFS, and these files in one commit on main."""
    folder.mkdir(parents=True)
    git(folder, "init", "--quiet", "-b", "main")
    git(folder, "lfs", "install", "--local", **credentials(""))
    (folder / ".gitattributes").write_text("*.onnx filter=lfs diff=lfs merge=lfs -text\n")
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    git(folder, "add", "--all", **credentials(""))
    git(folder, "commit", "--quiet", "-m", "with a large file", **credentials(""))
    return folder


@contextmanager
def git_server(
    tables: Path, pace: ReceiveTiming | None = None, stall_s: float = 60.0, public_url: str = ""
) -> Iterator[Served]:
    """`tables`: a migrated SQLite file, which is copied."""
    with short_folder() as folder:
        shutil.copy(tables, folder / "modelyard.db")
        database = Database(f"sqlite:///{folder}/modelyard.db")
        composition = _Composition(folder, database, pace, stall_s, public_url)
        thread = threading.Thread(target=composition.run, name="git server")
        thread.start()
        try:
            yield composition.ready.result(DEADLINE_SECS)
        finally:
            composition.stop.set()
            thread.join(DEADLINE_SECS)
            database.close()
        assert not thread.is_alive()


class _Composition:
    def __init__(
        self,
        folder: Path,
        database: Database,
        pace: ReceiveTiming | None,
        stall_s: float,
        public_url: str,
    ) -> None:
        self.ready: Future[Served] = Future()
        self.stop = threading.Event()
        self._folder = folder
        self._database = database
        self._pace = pace
        self._stall_s = stall_s
        self._public_url = public_url
        self._served: Served

    def run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # raised again where it is waited for
            if self.ready.done():
                raise
            self.ready.set_exception(error)

    async def _serve(self) -> None:
        keys, store = PushKeys(), self._folder / "store"
        commits = EventNotifier(lambda: 0, 60.0)
        services = ControlServices(
            database=self._database,
            commits=commits,
            facts=facts(self._folder, public_url=self._public_url),
            rates=RateLimiter(),
            failures=LoginThrottle(),
            archive=lambda out: None,
            explain=explain,
        )
        listener = HookListener(self._folder / "hook.sock", self._decide, deadline_s=60)
        await listener.start()
        app = GitApp(services, keys, SECRET, listener.path, self._pace, self._stall_s)
        wire = ConnectionLimits(chunks=2**31, stall_s=max(self._stall_s * 3, 3.0))
        protocol = type("GitConnection", (Http1Connection,), {"wire": wire})
        door = await start(self._noting(app), ListenAddress("127.0.0.1", 0), protocol)
        loop = asyncio.get_running_loop()
        self._served = Served(store, self._database, keys, door.port, loop, services=services)
        self.ready.set_result(self._served)
        await asyncio.to_thread(self.stop.wait)
        await door.stop(time.monotonic_ns() + 2 * 10**9)
        await listener.close()
        await commits.close()

    async def _decide(self, request: HookRequest, say: Say) -> bool:
        pushing = self._served.keys.find(request.key)
        if pushing is None:
            say("this push is not known here any more; push again")
            return False
        self._served.decided.append((pushing, request))
        if request.hook == "post-receive":
            return True
        await asyncio.to_thread(self._served.meanwhile)
        asked = (pushing.principal, Action.PUSH, pushing.repository)
        refused = [update.ref for update in request.updates if not allows(*asked, update.ref)]
        for ref in refused:
            say(why_not(*asked, ref))
        return not refused

    def _noting(self, app: Any) -> Any:
        async def noting(scope: Any, receive: Any, send: Any) -> None:
            headers = dict(scope["headers"])
            notes = [scope["method"], scope["path"].removeprefix("/git/")]
            notes += [headers[name].decode() for name in (b"range",) if name in headers]
            if scope["query_string"]:
                notes[1] += f"?{scope['query_string'].decode()}"

            async def sent(message: Any) -> None:
                if message["type"] == "http.response.start":
                    self._served.requests.append(" ".join([*notes, str(message["status"])]))
                await send(message)

            await app(scope, receive, sent)

        return noting


@contextmanager
def cutting(port: int, after_bytes: int) -> Iterator[int]:
    """The port of a proxy that once ends the connection on which so many bytes have come back."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        proxy = _Proxy(port, after_bytes)
        thread = threading.Thread(target=proxy.serve, args=(listening,), name="proxy")
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join(DEADLINE_SECS)
            proxy.close()
        assert proxy.has_cut, "nothing was cut"


class _Proxy:
    def __init__(self, port: int, after_bytes: int) -> None:
        self.has_cut = False
        self._port = port
        self._after_bytes = after_bytes
        self._threads: list[threading.Thread] = []
        self._sockets: list[socket.socket] = []

    def serve(self, listening: socket.socket) -> None:
        while True:
            try:
                here, _ = listening.accept()
            except OSError:
                return
            there = socket.create_connection(("127.0.0.1", self._port), DEADLINE_SECS)
            self._sockets += [here, there]
            for pair in ((here, there, False), (there, here, True)):
                thread = threading.Thread(target=self._carry, args=pair)
                self._threads.append(thread)
                thread.start()

    def close(self) -> None:
        for one in self._sockets:
            _end(one)
        for thread in self._threads:
            thread.join(DEADLINE_SECS)
        for one in self._sockets:
            one.close()

    def _carry(self, source: socket.socket, target: socket.socket, back: bool) -> None:
        carried = 0
        try:
            while chunk := source.recv(65536):
                target.sendall(chunk)
                carried += len(chunk)
                if back and carried >= self._after_bytes and not self.has_cut:
                    self.has_cut = True
                    break
        except OSError:
            pass
        _end(source)
        _end(target)


def _end(one: socket.socket) -> None:
    try:
        one.shutdown(socket.SHUT_RDWR)
    except OSError:
        return
