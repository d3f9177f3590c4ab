"""Checking: complete a version's config from its artefact, in a process that may die of it.

The fleet asks a `Checker` before it loads, `modelyard check` too. Each check runs in a child
(`server.fleet.check_version`) that reads artefacts and never executes them; a child that crashes or
overruns costs that one version a clear reason, and nothing else anything.
"""

import asyncio
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgpack

from backends.errors import LoadFailed
from repository.model import ModelConfig, ModelVersion
from repository.pipes import feed
from server.fleet.check_version import (
    FILES,
    GRACE_S,
    LENGTH,
    LIKE_TRITON,
    Completion,
    complete_version,
    where,
)

__all__ = ["Checker", "Completion", "complete_version"]

_ROOT = str(Path(__file__).resolve().parent.parent.parent)


class Checker:
    """Completes configs in at most `children` child processes.

    A child starts when first needed, is reused, and ends after `idle_s` seconds without work.
    `deadline_s` bounds one check. Belongs to one event loop; `close` it.
    """

    def __init__(
        self,
        deadline_s: float = 60.0,
        children: int = 2,
        idle_s: float = 5.0,
        rules: Completion = LIKE_TRITON,
    ) -> None:
        self._rules = rules
        self._deadline_s = deadline_s
        self._idle_s = idle_s
        self._slots = asyncio.Semaphore(children)
        self._warm: list[_Child] = []
        self._ending: set[asyncio.Task[None]] = set()

    async def complete(self, version: ModelVersion) -> ModelConfig:
        """The version's completed config; raises LoadFailed with the reason it has none."""
        async with self._slots:
            child = await self._take()
            try:
                answer = await self._ask(child, version)
            except BaseException:
                child.kill()
                self._end(child)
                raise
            if "bug" in answer:
                self._end(child)
            else:
                self._rest(child)
        return _read_answer(answer)

    async def close(self) -> None:
        """End every child. Checks under way must have ended."""
        while self._warm:
            self._end(self._warm.pop())
        while self._ending:
            await asyncio.gather(*self._ending)

    async def _take(self) -> "_Child":
        while self._warm:
            child = self._warm.pop()
            if child.alive:
                return child
            self._end(child)
        return await _Child.start()

    async def _ask(self, child: "_Child", version: ModelVersion) -> dict[str, Any]:
        try:
            async with asyncio.timeout(self._deadline_s):
                return await child.ask(_question(version, self._deadline_s, self._rules))
        except TimeoutError:
            raise LoadFailed(
                f"{where(version)}: checking took longer than {self._deadline_s:g} s "
                f"while reading {_artefact_name(version)}"
            ) from None
        except (asyncio.IncompleteReadError, ConnectionError):
            raise LoadFailed(
                f"{where(version)}: the checker {await child.cause_of_death()} "
                f"while reading {_artefact_name(version)}; it may be damaged, or too large for "
                "this machine's memory"
            ) from None

    def _rest(self, child: "_Child") -> None:
        self._warm.append(child)
        child.retirement = asyncio.get_running_loop().call_later(self._idle_s, self._retire, child)

    def _retire(self, child: "_Child") -> None:
        if child in self._warm:
            self._warm.remove(child)
            self._end(child)

    def _end(self, child: "_Child") -> None:
        task = asyncio.ensure_future(child.end())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)


class _Child:
    """One checking process, as its parent sees it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.retirement: asyncio.TimerHandle | None = None

    @classmethod
    async def start(cls) -> "_Child":
        paths = [_ROOT, *filter(None, [os.environ.get("PYTHONPATH")])]
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",  # the current folder may be a model repository: import nothing from it
            "-m",
            "server.fleet.check_version",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            start_new_session=True,  # Ctrl-C is the server's to answer
        )
        return cls(process)

    @property
    def alive(self) -> bool:
        """Whether it still runs, even where the loop has not yet heard of its end."""
        if self._process.returncode is not None:
            return False
        look = os.WEXITED | os.WNOHANG | os.WNOWAIT  # leave the reaping to the loop
        try:
            return os.waitid(os.P_PID, self._process.pid, look) is None
        except ChildProcessError:
            return False

    async def ask(self, question: bytes) -> dict[str, Any]:
        """One question, one answer. Raises IncompleteReadError or ConnectionError if it dies."""
        if self.retirement is not None:
            self.retirement.cancel()
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        await feed(process.stdin, LENGTH.pack(len(question)) + question)
        (length,) = LENGTH.unpack(await process.stdout.readexactly(LENGTH.size))
        answer: dict[str, Any] = msgpack.unpackb(await process.stdout.readexactly(length))
        return answer

    async def cause_of_death(self) -> str:
        """ "died with signal 11 (SIGSEGV)", in the words of an error message."""
        code = await self._process.wait()
        if code >= 0:
            return f"ended with exit code {code}"
        return f"died with signal {-code} ({signal.Signals(-code).name})"

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()

    async def end(self) -> None:
        """Ask it to end by closing its input, insist after a few seconds, and reap it."""
        if self.retirement is not None:
            self.retirement.cancel()
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), GRACE_S)
        except TimeoutError:
            self.kill()
            await self._process.wait()


def _artefact_name(version: ModelVersion) -> str:
    written = version.config.default_model_filename
    found = (name for name in FILES if (version.path / name).exists())
    return written or next(found, "its folder")


def _question(version: ModelVersion, deadline_s: float, rules: Completion) -> bytes:
    packed: bytes = msgpack.packb(
        {
            "name": version.name,
            "number": version.number,
            "folder": str(version.folder),
            "path": str(version.path),
            "config": version.config.SerializeToString(),
            "digest": version.digest,
            "deadline_s": deadline_s,
            "rules": list(rules),
        }
    )
    return packed


def _read_answer(answer: dict[str, Any]) -> ModelConfig:
    for kind in ("error", "bug"):
        if kind in answer:
            raise LoadFailed(answer[kind])
    return ModelConfig.FromString(answer["config"])
