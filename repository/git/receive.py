"""git's two services over HTTP, fetching and pushing, as streams of bytes without a framework.

Serve `GET <repository>/info/refs?service=…` with `advertise` and `POST <repository>/<service>` with
`rpc`. A client sends `0000` first and then a chunked body when a push is large, and may compress
small bodies (`body.gunzip`), so neither a length nor plain bytes may be counted on.
"""

import asyncio
import contextlib
import logging
import re
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from repository.git.body import bounded
from repository.git.errors import GitTimedOut
from repository.git.process import GitProcess, run, started
from repository.git.turns import RepositoryTurns
from repository.process.pipes import feed

logger = logging.getLogger(__name__)

_CHUNK_BYTES = 64 * 1024
_GRACE_SECS = 3.0
_MOST_WANTS_BYTES = 16 * 2**20
_PROTOCOL = re.compile(r"version=[0-9](?::[a-z0-9=._-]{1,40}){0,4}")


class GitService(StrEnum):
    """What a client asks for, in the words of its URLs."""

    RECEIVE = "git-receive-pack"
    UPLOAD = "git-upload-pack"


@dataclass(frozen=True, slots=True)
class ReceiveTiming:
    """How long, how many at once, and how many of a repository wait for their turn: up to `wait_s`.

    `stall_s`: longest time in which no byte moves in either direction; a hook that thinks counts
    as moving, because git keeps the line alive. `discarded_bytes`: what is still read of a push
    after git has refused it, so that its client finishes sending and reads the reason.
    """

    most_at_once: int = 4
    most_waiting: int = 32
    wait_s: float = 30.0
    stall_s: float = 60.0
    total_s: float = 3600.0
    discarded_bytes: int = 1024 * 2**20


def protocol_variables(header: str) -> dict[str, str]:
    """The environment that a `Git-Protocol` header asks for; one we do not know asks for none."""
    return {"GIT_PROTOCOL": header} if _PROTOCOL.fullmatch(header) else {}


class SmartHttp:
    """Both services for all repositories; one per event loop."""

    def __init__(self, pace: ReceiveTiming | None = None) -> None:
        self._pace = pace or ReceiveTiming()
        pace = self._pace
        self._turns = RepositoryTurns(pace.most_at_once, pace.most_waiting, pace.wait_s)

    async def advertise(
        self, repository: Path, service: GitService, git_protocol: str = ""
    ) -> bytes:
        """The body of `info/refs`; `git_protocol` is the request's header of that name.

        Raises `Busy`, `GitFailed`.
        """
        variables = protocol_variables(git_protocol) if service is GitService.UPLOAD else {}
        options = ("--stateless-rpc", "--http-backend-info-refs", str(repository))
        async with self._turns.turn(repository):
            command = (service.removeprefix("git-"), *options)
            output = await run(repository, *command, environment=variables)
        if variables.get("GIT_PROTOCOL", "").startswith("version=2"):
            return output.stdout
        return _packet_line(f"# service={service}\n") + b"0000" + output.stdout

    async def rpc(
        self,
        repository: Path,
        service: GitService,
        body: AsyncIterator[bytes],
        environment: Mapping[str, str] | None = None,
    ) -> AsyncGenerator[bytes]:
        """git's answer to one request, as it comes, while the request is still being read.

        Close it (`contextlib.aclosing`) when the client has gone: git and what it started end,
        and a push that was not complete leaves nothing. `environment` is added to git's and seen
        by the hooks. Raises, before the first chunk, `Busy` or `GitFailed`; at any time
        `GitTimedOut`, and whatever `body` raises.
        """
        if service is GitService.UPLOAD:
            body = bounded(body, _MOST_WANTS_BYTES)
        command = (service.removeprefix("git-"), "--stateless-rpc", str(repository))
        async with (
            self._turns.turn(repository),
            started(repository, command, environment=environment) as git,
        ):
            exchange = _GitRequest(git, self._pace)
            tasks = exchange.begin(body)
            try:
                sent = False
                while chunk := await git.stdout.read(_CHUNK_BYTES):
                    exchange.note_movement()
                    sent = True
                    yield chunk
                await exchange.finish(sent=sent)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)


class _GitRequest:
    """One request on its way into git; its answer is read by the owner."""

    def __init__(self, git: GitProcess, pace: ReceiveTiming) -> None:
        self._git = git
        self._pace = pace
        self._loop = asyncio.get_running_loop()
        self._moved = self._began = self._loop.time()
        self._late = ""
        self._feeding: asyncio.Task[None]

    def begin(self, body: AsyncIterator[bytes]) -> tuple[asyncio.Task[None], ...]:
        """Start feeding and watching; the caller cancels both in the end."""
        self._feeding = asyncio.create_task(self._feed(body))
        return self._feeding, asyncio.create_task(self._watch())

    def note_movement(self) -> None:
        self._moved = self._loop.time()

    async def finish(self, *, sent: bool) -> None:
        """Wait for the rest of the body and the end of git; `sent`: it has answered something."""
        await asyncio.wait([self._feeding])
        if self._late:
            raise GitTimedOut(self._git.command, -signal.SIGTERM, self._late)
        self._feeding.result()
        status = await self._git.ended()
        if status and not sent:
            raise self._git.failed(status)
        if status:  # git has told its client already, in the answer
            logger.info("%s", self._git.failed(status))

    async def _feed(self, body: AsyncIterator[bytes]) -> None:
        try:
            await self._pass_on(body)
        except BaseException:
            self._git.give_up()
            raise
        with contextlib.suppress(ConnectionError):
            self._git.stdin.close()

    async def _pass_on(self, body: AsyncIterator[bytes]) -> None:
        listens, left = True, self._pace.discarded_bytes
        async for chunk in body:
            self.note_movement()
            if not listens:
                left -= len(chunk)
                if left < 0:
                    return
                continue
            try:
                await feed(self._git.stdin, chunk)
            except ConnectionError:
                listens = False

    async def _watch(self) -> None:
        while not self._late:
            now = self._loop.time()
            stalls, ends = self._moved + self._pace.stall_s, self._began + self._pace.total_s
            if now >= min(stalls, ends):
                self._late = self._reason(stalls <= ends)
            else:
                await asyncio.sleep(min(stalls, ends) - now)
        self._feeding.cancel()
        self._git.give_up()
        await asyncio.sleep(_GRACE_SECS)
        self._git.kill()

    def _reason(self, stalled: bool) -> str:
        pace = self._pace
        return (
            f"no byte moved for {pace.stall_s:g} s" if stalled else f"over {pace.total_s:g} s long"
        )


def _packet_line(text: str) -> bytes:
    return f"{len(text) + 4:04x}{text}".encode()
