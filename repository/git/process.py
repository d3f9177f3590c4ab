"""Runs system git: in a clean environment, with a deadline, and never longer than we live.

Whoever starts git must do so from a thread that lives as long as the work: a child is told to end
when the thread that started it does. The event loop's own thread is such a one.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from repository.git.errors import GitFailed, GitMissing, GitTimedOut
from repository.git.quarantine import Quarantine
from repository.git.text import plain_text
from repository.process.pipes import feed

READ_SECS = 60.0
"""Deadline of a command that only reads."""

MEMORY_BYTES = 2 * 2**30
"""Private memory of one git process: deltas can be made that unfold to any size."""

_GRACE_SECS = 3.0
_CHUNK_BYTES = 64 * 1024
_MOST_OUTPUT_BYTES = 64 * 2**20
_MOST_WORDS_BYTES = 4096
_LAUNCH = str(Path(__file__).with_name("launch.py"))


@dataclass(frozen=True, slots=True)
class GitOutput:
    """How a git command ended, and what it wrote."""

    status: int
    stdout: bytes


class GitProcess:
    """One running git; `stdin` and `stdout` are pipes, stderr is read as it comes."""

    def __init__(self, command: str, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self.command = command
        self.receives = command == "receive-pack"
        self.stdin, self.stdout = process.stdin, process.stdout
        self._process = process
        self._words = bytearray()
        self._listening = asyncio.create_task(self._listen(process.stderr))

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def _runs(self) -> bool:
        return self._process.returncode is None

    @property
    def words(self) -> str:
        """The last lines that git wrote to stderr, as one line of plain text."""
        lines = self._words.decode(errors="replace").splitlines()
        return plain_text("; ".join(filter(None, map(str.strip, lines[-8:]))))

    async def ended(self) -> int:
        """Wait for git and everything it wrote to stderr; the exit status."""
        status = await self._process.wait()
        await asyncio.wait([self._listening], timeout=_GRACE_SECS)
        return status

    def failed(self, status: int) -> GitFailed:
        return GitFailed(self.command, status, self.words)

    def give_up(self) -> None:
        """Let git end as if its client had fallen silent, and remove what it had not finished.

        A signal would not do: since 2.39 git leaves its quarantine behind when one ends it. What
        it has started gets one, and git answers for the failure.
        """
        self.stdin.close()
        for child in _children(self.pid):
            _signal(child, signal.SIGTERM)

    def terminate(self) -> None:
        """Ask git to end; it removes its lock files, but not its quarantine."""
        _signal(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        """End git and everything it started, now."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    async def close(self) -> None:
        """End git if it still runs, first kindly, and whatever it left running; bounded."""
        try:
            if self._runs and self.receives:
                self.give_up()
                await self._exit_within(_GRACE_SECS)
            if self._runs:
                self.terminate()
                await self._exit_within(_GRACE_SECS)
        finally:
            self.kill()
            self.stdin.close()
        await self._process.wait()
        await self._read_to_the_end()

    async def _read_to_the_end(self) -> None:
        """Pipes that have been read to their end close themselves."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GRACE_SECS):
                while await self.stdout.read(_CHUNK_BYTES):
                    pass
                await self._listening
        self._listening.cancel()

    async def _exit_within(self, timeout_s: float) -> None:
        """asyncio does not tell of an end while there is output that nobody has read."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while await self.stdout.read(_CHUNK_BYTES):
                    pass
                await self._process.wait()

    async def _listen(self, stderr: asyncio.StreamReader) -> None:
        while chunk := await stderr.read(_CHUNK_BYTES):
            self._words += chunk
            del self._words[:-_MOST_WORDS_BYTES]


@asynccontextmanager
async def started(
    repository: Path,
    arguments: Sequence[str],
    *,
    quarantine: Quarantine | None = None,
    environment: Mapping[str, str] | None = None,
    nice: int = 0,
) -> AsyncIterator[GitProcess]:
    """git with these arguments on this bare repository; leaving the block ends it. `nice`: how much
    it gives way to other processes, up to 19.

    Raises `GitMissing`.
    """
    command = [_git(), "-c", _trust(repository), f"--git-dir={repository}", *arguments]
    inside = quarantine.environment(repository) if quarantine is not None else {}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", _LAUNCH, str(os.getpid()), str(MEMORY_BYTES), str(nice)),
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**_environment(), **inside, **(environment or {})},
        start_new_session=True,
        limit=4 * _CHUNK_BYTES,
    )
    git = GitProcess(arguments[0], process)
    try:
        yield git
    finally:
        await git.close()


async def run(
    repository: Path,
    *arguments: str,
    stdin: bytes = b"",
    quarantine: Quarantine | None = None,
    environment: Mapping[str, str] | None = None,
    accepted: Collection[int] = (0,),
    timeout_s: float = READ_SECS,
    nice: int = 0,
) -> GitOutput:
    """git's answer to one command, whole.

    Raises `GitFailed` for an exit status that is not accepted or more than 64 MiB of output,
    `GitTimedOut`, and `GitMissing`.
    """
    async with started(
        repository, arguments, quarantine=quarantine, environment=environment, nice=nice
    ) as git:
        try:
            async with asyncio.timeout(timeout_s):
                stdout, _ = await asyncio.gather(_whole(git), _feed(git, stdin))
                status = await git.ended()
        except TimeoutError:
            late = f"no answer within {timeout_s:g} s"
            raise GitTimedOut(git.command, -signal.SIGTERM, late) from None
        if status not in accepted:
            raise git.failed(status)
        return GitOutput(status, stdout)


def _children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:  # it has ended, or this kernel does not tell
        return []


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


async def _feed(git: GitProcess, stdin: bytes) -> None:
    with contextlib.suppress(ConnectionError):
        await feed(git.stdin, stdin)
        git.stdin.close()


async def _whole(git: GitProcess) -> bytes:
    output = bytearray()
    while chunk := await git.stdout.read(_CHUNK_BYTES):
        output += chunk
        if len(output) > _MOST_OUTPUT_BYTES:
            raise GitFailed(git.command, 0, f"more than {_MOST_OUTPUT_BYTES} bytes of output")
    return bytes(output)


def _trust(repository: Path) -> str:
    """Ours, whoever owns the files: a mounted volume often belongs to another user."""
    return f"safe.directory={os.path.realpath(repository)}"


@cache
def _git() -> str:
    found = shutil.which("git")
    if found is None:
        raise GitMissing("there is no 'git' on the PATH; install git 2.39 or newer")
    return os.path.abspath(found)


def _environment() -> dict[str, str]:
    """Nothing of ours but the PATH: no settings of the user's, no credentials, no prompt."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": "/nonexistent",
        "LC_ALL": "C",
        "TZ": "UTC",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ALLOW_PROTOCOL": "none",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_LITERAL_PATHSPECS": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_COMMITTER_NAME": "modelyard",
        "GIT_COMMITTER_EMAIL": "modelyard@localhost",
    }
