"""Checking: complete a version's config from its artefact, or find out what code it would run, in a
process that may die of it.

The fleet asks a `Checker` before it loads, `modelyard check` too. Each check runs in a child
(`server.fleet.checks.check_version`) that reads artefacts and never executes them; a child that
crashes or overruns costs that one version a clear reason, and nothing else anything.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgpack
from google.protobuf.message import DecodeError

from backends.errors import LoadFailed
from backends.host.output import logged
from repository.code_use import CodeUse
from repository.model import ModelConfig, ModelVersion
from repository.pipes import feed
from repository.sandbox.children import child_environment, start_line
from repository.sandbox.policy import Sandbox
from server.fleet.checks.check_slots import CheckSlots
from server.fleet.checks.check_version import (
    FILES,
    GRACE_S,
    LENGTH,
    LIKE_TRITON,
    MEMORY_BYTES,
    CheckKind,
    ConfigCompletion,
    complete_version,
    where,
)
from server.process.machine import usable_memory

__all__ = ["Checker", "ConfigCompletion", "complete_version"]

_MOST_REASON_CHARACTERS = 1 << 20


class Checker:
    """Looks at versions in at most `children` child processes, of a model one at a time.

    A child starts when first needed, is reused, and ends after `idle_s` seconds without work.
    `deadline_s` bounds one check. One that takes longer than `slow_s` lets others past: up to
    `most_slow` such checks run beside the `children`. `sandbox`: what a child may do; None for
    what we may. Belongs to one event loop; `close` it.
    """

    def __init__(
        self,
        deadline_s: float = 60.0,
        children: int = 2,
        idle_s: float = 5.0,
        rules: ConfigCompletion = LIKE_TRITON,
        slow_s: float = 5.0,
        most_slow: int = 8,
        sandbox: Sandbox | None = None,
    ) -> None:
        self._rules = rules
        self._sandbox = sandbox
        self._machine_bytes = usable_memory()
        self._deadline_s = deadline_s
        self._idle_s = idle_s
        self._slots = CheckSlots(children, slow_s, most_slow)
        self._warm: list[_Child] = []
        self._ending: set[asyncio.Task[None]] = set()

    async def complete(self, version: ModelVersion) -> ModelConfig:
        """The version's completed config; raises LoadFailed with the reason it has none."""
        answer = await self._answer(version, CheckKind.CONFIG)
        with _readable():
            return ModelConfig.FromString(answer["config"])

    async def code_uses(self, version: ModelVersion) -> tuple[CodeUse, ...]:
        """The code that serving the version would run, none where it cannot be loaded. Raises
        LoadFailed when that could not be found out: then it may be anything."""
        answer = await self._answer(version, CheckKind.CODE)
        with _readable():
            return tuple(CodeUse(*use) for use in answer["uses"])

    async def _answer(self, version: ModelVersion, asked: CheckKind) -> dict[str, Any]:
        async with self._slots.of(version.name):
            child = await self._take(version)
            try:
                answer = await self._ask(child, version, asked)
            except BaseException:
                child.kill()
                self._end(child)
                raise
            if "bug" in answer:
                self._end(child)
            else:
                self._rest(child)
        for kind in ("error", "bug"):
            if kind in answer:
                raise LoadFailed(str(answer[kind])[:_MOST_REASON_CHARACTERS])
        return answer

    async def close(self) -> None:
        """End every child. Checks under way must have ended."""
        while self._warm:
            self._end(self._warm.pop())
        while self._ending:
            await asyncio.gather(*self._ending)

    async def _take(self, version: ModelVersion) -> "_Child":
        while self._warm:
            child = self._warm.pop()
            if child.alive and self._may_read(version):
                return child
            self._end(child)
        return await _Child.start(self._sandbox)

    def _may_read(self, version: ModelVersion) -> bool:
        """Whether a child that runs already may read `version` for sure: what a link leads to may
        be younger than the child, and what is new beside something hidden is hidden as well."""
        if self._sandbox is None:
            return True
        real = version.path.resolve()
        return any(real.is_relative_to(root) for root in self._sandbox.readable)

    async def _ask(
        self, child: "_Child", version: ModelVersion, asked: CheckKind
    ) -> dict[str, Any]:
        try:
            async with asyncio.timeout(self._deadline_s):
                return await child.ask(
                    _question(version, asked, self._deadline_s, self._rules, self._machine_bytes)
                )
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
    async def start(cls, sandbox: Sandbox | None) -> "_Child":
        with logged("checker") as stderr:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",  # the current folder may be a model repository: import nothing from it
                "-c",
                start_line("server.fleet.checks.check_version"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=stderr,
                env=child_environment(sandbox),
                start_new_session=True,  # Ctrl-C is the server's to answer
            )
        _end_first(process.pid)
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
        if length > _MOST_ANSWER_BYTES:
            self.kill()
            raise ConnectionError(f"an answer of {length} bytes")
        return self._read(await process.stdout.readexactly(length))

    def _read(self, packed: bytes) -> dict[str, Any]:
        """One word and what it is about; a process that says anything else is taken over."""
        try:
            most = _MOST_USES if len(packed) <= _MOST_USES_BYTES else 0
            answer: dict[str, Any] = msgpack.unpackb(packed, max_array_len=most, max_map_len=1)
            ((word, said),) = answer.items()
            if not isinstance(said, _ANSWERS[word]):
                raise ValueError("no answer")
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            self.kill()
            raise ConnectionError(str(error)) from None
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


_ANSWERS: dict[str, type] = {"config": bytes, "uses": list, "error": str, "bug": str}
_MOST_USES, _MOST_USES_BYTES = 64, 1 << 20
_MOST_ANSWER_BYTES = 1 << 26
"""Of a config as completed, or the reason why there is none."""


def _end_first(pid: int) -> None:
    """Should memory run out, the kernel is to end this process and none that serves."""
    with suppress(OSError):
        Path(f"/proc/{pid}/oom_score_adj").write_text("1000")


def _artefact_name(version: ModelVersion) -> str:
    written = version.config.default_model_filename
    found = (name for name in FILES if (version.path / name).exists())
    return written or next(found, "its folder")


def _question(
    version: ModelVersion,
    asked: CheckKind,
    deadline_s: float,
    rules: ConfigCompletion,
    machine_bytes: int,
) -> bytes:
    packed: bytes = msgpack.packb(
        {
            "asked": str(asked),
            "name": version.name,
            "number": version.number,
            "folder": str(version.folder),
            "path": str(version.path),
            "config": version.config.SerializeToString(),
            "digest": version.digest,
            "deadline_s": deadline_s,
            "rules": list(rules),
            "memory_bytes": MEMORY_BYTES,
            "machine_bytes": machine_bytes,
        }
    )
    return packed


@contextmanager
def _readable() -> Iterator[None]:
    """What a child answers is foreign where a file has taken it over."""
    try:
        yield
    except (KeyError, DecodeError, TypeError) as error:
        raise LoadFailed(f"the checker's answer cannot be read: {error}") from None
