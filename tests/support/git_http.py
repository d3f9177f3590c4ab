"""A real git server for tests: `repository.git` under a raw ASGI app on a free port, and a client.

`with serving(root) as server` runs it in a thread with an event loop of its own; `git(...)` is the
stock client in a clean environment.
"""

import asyncio
import contextlib
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qs

import uvloop

from repository.git import bare
from repository.git.bare import BareRepository, ReceiveLimits
from repository.git.body import gunzip
from repository.git.errors import GitError
from repository.git.hooks.hook import KEY_VARIABLE, SOCKET_VARIABLE, HookRequest
from repository.git.hooks.listener import HookListener, Say
from repository.git.receive import GitService, ReceiveTiming, SmartHttp, protocol_variables
from server.http1.connection import ConnectionLimits, Http1Connection
from server.http1.listener import start
from server.listen_address import ListenAddress

Answer = Callable[[HookRequest, Say], Awaitable[bool]]
T = TypeVar("T")
DEADLINE_SECS = 60.0

CLIENT = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "LC_ALL": "C",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.com",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.com",
}


class ClientGone(Exception):
    """The client has closed its connection."""


async def accept(request: HookRequest, say: Say) -> bool:
    """The answer of a server that takes every push."""
    return True


def git(folder: Path, *arguments: str, stdin: bytes = b"", **environment: str) -> str:
    """The client's output; raises `CalledProcessError`, whose `stderr` is text."""
    done = client(folder, *arguments, stdin=stdin, **environment)
    done.check_returncode()
    return done.stdout.strip()


def client(
    folder: Path, *arguments: str, stdin: bytes = b"", **environment: str
) -> subprocess.CompletedProcess[str]:
    """The client run to its end, whatever that is; both outputs are text."""
    done = subprocess.run(
        ["git", *arguments],
        cwd=folder,
        env={**CLIENT, **environment},
        input=stdin,
        capture_output=True,
        timeout=180,
        check=False,
    )
    texts = (stream.decode(errors="replace") for stream in (done.stdout, done.stderr))
    return subprocess.CompletedProcess(done.args, done.returncode, *texts)


def work_tree(folder: Path, files: dict[str, bytes] | None = None) -> Path:
    """A repository of the client's with one commit on main."""
    folder.mkdir(parents=True)
    git(folder, "init", "--quiet", "-b", "main")
    commit(folder, files or {"models/m/config.pbtxt": b"", "models/m/1/model.onnx": b"weights"})
    return folder


def commit(folder: Path, files: dict[str, bytes], message: str = "a change") -> str:
    """Write files and commit them; the commit's id."""
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "-m", message)
    return git(folder, "rev-parse", "HEAD")


def commit_of(folder: Path, *entries: tuple[str, str, str]) -> str:
    """A commit of a flat tree of (mode, oid, name), however odd; nothing is checked."""
    lines = "".join(f"{mode} {kind_of(mode)} {oid}\t{name}\0" for mode, oid, name in entries)
    tree = git(folder, "mktree", "-z", "--missing", stdin=lines.encode(errors="surrogateescape"))
    return git(folder, "commit-tree", tree, "-m", "odd")


def kind_of(mode: str) -> str:
    return {"040000": "tree", "160000": "commit"}.get(mode, "blob")


def blob(folder: Path, content: bytes = b"content") -> str:
    return git(folder, "hash-object", "-w", "--stdin", stdin=content)


@contextmanager
def short_folder() -> Iterator[Path]:
    """A folder whose path leaves room for a Unix socket's name."""
    with tempfile.TemporaryDirectory(prefix="my-") as name:
        yield Path(name)


@dataclass
class GitServer:
    """A running server; `requests` has one line per request: verb, path, what was special."""

    root: Path
    port: int
    loop: asyncio.AbstractEventLoop
    listener: HookListener
    answer: Answer = accept
    requests: list[str] = field(default_factory=list)
    failures: list[BaseException] = field(default_factory=list)

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.port}/{name}.git"

    def bare(self, name: str) -> BareRepository:
        return bare.find(self.root, name)

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something on the server's loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(DEADLINE_SECS)

    def create(self, name: str, push_bytes: int = 64 * 2**20) -> BareRepository:
        return self.call(bare.create(self.root, name, ReceiveLimits(push_bytes)))


@contextmanager
def serving(
    root: Path, answer: Answer = accept, pace: ReceiveTiming | None = None, uv: bool = True
) -> Iterator[GitServer]:
    """A server over the store at `root`; `uv`: on uvloop, as in production."""
    ready: Future[tuple[GitServer, asyncio.Event]] = Future()

    async def main() -> None:
        async def decide(request: HookRequest, say: Say) -> bool:
            return await made.answer(request, say)

        listener = HookListener(root / "hook.sock", decide, deadline_s=60)
        await listener.start()
        app = _App(pace)
        http = await start(app, ListenAddress("127.0.0.1", 0), _Connection)
        made = GitServer(root, http.port, asyncio.get_running_loop(), listener, answer)
        app.serve(made)
        ending = asyncio.Event()
        ready.set_result((made, ending))
        await ending.wait()
        await http.stop(time.monotonic_ns() + int(DEADLINE_SECS / 2 * 1e9))
        await listener.close()

    def run() -> None:
        factory = uvloop.new_event_loop if uv else asyncio.new_event_loop
        try:
            with asyncio.Runner(loop_factory=factory) as runner:
                runner.run(main())
        except Exception as error:  # noqa: BLE001 - raised again where it is waited for
            ready.set_exception(error)

    thread = threading.Thread(target=run)
    thread.start()
    made, ending = ready.result(DEADLINE_SECS)
    try:
        yield made
    finally:
        made.loop.call_soon_threadsafe(ending.set)
        thread.join(DEADLINE_SECS)
    assert not thread.is_alive()


class _Connection(Http1Connection):
    """With packs in as many chunks as the control process takes."""

    wire = ConnectionLimits(chunks=2**31)


class _App:
    """The raw ASGI app: reads the body while it writes the answer."""

    _server: GitServer

    def __init__(self, pace: ReceiveTiming | None) -> None:
        self._http = SmartHttp(pace)

    def serve(self, server: GitServer) -> None:
        self._server = server

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        name, _, rest = scope["path"].lstrip("/").partition(".git/")
        repository = bare.find(self._server.root, name).path
        notes = (scope["method"], rest, *_notes(headers))
        self._server.requests.append(" ".join(notes))
        protocol = headers.get("git-protocol", "")
        if rest == "info/refs":
            service = GitService(parse_qs(scope["query_string"].decode())["service"][0])
            try:
                content = await self._http.advertise(repository, service, protocol)
            except GitError as error:
                self._server.failures.append(error)
                await send({"type": "http.response.start", "status": 503, "headers": []})
                await send({"type": "http.response.body", "body": str(error).encode()})
                return
            await _start(send, f"application/x-{service}-advertisement")
            await send({"type": "http.response.body", "body": content})
            return
        service = GitService(rest)
        incoming = _Incoming(receive)
        body = incoming.body()
        if headers.get("content-encoding") == "gzip":
            body = gunzip(body, 2**20)
        environment = {
            **protocol_variables(protocol),
            SOCKET_VARIABLE: str(self._server.listener.path),
            KEY_VARIABLE: "push-1",
        }
        answer = self._http.rpc(repository, service, body, environment)
        answering = asyncio.create_task(_answer(send, service, answer))
        watching = asyncio.create_task(incoming.until_gone())
        await asyncio.wait((answering, watching), return_when=asyncio.FIRST_COMPLETED)
        for task in (answering, watching):
            task.cancel()
        await asyncio.wait((answering, watching))
        if not answering.cancelled() and (error := answering.exception()):
            self._server.failures.append(error)


async def _answer(send: Any, service: GitService, answer: Any) -> None:
    async with aclosing(answer) as chunks:
        await _start(send, f"application/x-{service}-result")
        async for chunk in chunks:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


class _Incoming:
    def __init__(self, receive: Any) -> None:
        self._receive = receive
        self._ended = asyncio.Event()

    async def body(self) -> AsyncIterator[bytes]:
        more = True
        while more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            more = message.get("more_body", False)
            yield message["body"]
        self._ended.set()

    async def until_gone(self) -> None:
        await self._ended.wait()
        with contextlib.suppress(asyncio.CancelledError):
            await self._receive()


def _notes(headers: dict[str, str]) -> list[str]:
    wanted = ("content-encoding", "transfer-encoding", "git-protocol", "content-length")
    return [f"{name}={headers[name]}" for name in wanted if name in headers]


async def _start(send: Any, kind: str) -> None:
    fixed = [(b"content-type", kind.encode()), (b"cache-control", b"no-cache")]
    await send({"type": "http.response.start", "status": 200, "headers": fixed})
