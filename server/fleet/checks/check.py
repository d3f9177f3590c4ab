"""Checking: complete a version's config from its artefact, or find out what code it would run, in a
process that may die of it.

The fleet asks a `Checker` before it loads, `modelyard check` too. Each check runs in a child
(`server.fleet.checks.check_version`) that reads artefacts and never executes them; a child that
crashes or overruns costs that one version a clear reason, and nothing else anything.
"""

import asyncio
from contextlib import suppress
from pathlib import Path

from google.protobuf.message import DecodeError

from backends.errors import LoadFailed
from repository.code_use import CodeUse
from repository.model import ModelConfig, ModelVersion
from repository.process.child import ChildProgram
from repository.process.message_child import MessageChild
from repository.sandbox.children import child_environment
from repository.sandbox.policy import Sandbox
from server.fleet.checks.check_messages import (
    MOST_ANSWER_BYTES,
    CheckAnswer,
    CheckKind,
    CheckRefused,
    CheckRequest,
    CodeFound,
    CompletedConfig,
    ConfigCompletion,
    decode_answer,
    encode,
)
from server.fleet.checks.check_slots import CheckSlots
from server.fleet.checks.check_version import (
    FILES,
    GRACE_S,
    LIKE_TRITON,
    MEMORY_BYTES,
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
        answer = await self._check(version, CheckKind.CONFIG)
        if isinstance(answer, CompletedConfig):
            with suppress(DecodeError):  # a file has taken the process over
                return ModelConfig.FromString(answer.config)
        raise _unexpected(version, answer)

    async def code_uses(self, version: ModelVersion) -> tuple[CodeUse, ...]:
        """The code that serving the version would run, none where it cannot be loaded. Raises
        LoadFailed when that could not be found out: then it may be anything."""
        answer = await self._check(version, CheckKind.CODE)
        if isinstance(answer, CodeFound):
            return answer.uses
        raise _unexpected(version, answer)

    async def _check(self, version: ModelVersion, kind: CheckKind) -> CheckAnswer:
        async with self._slots.of(version.name):
            child = await self._take(version)
            try:
                answer = await self._ask(child, version, kind)
            except BaseException:
                child.kill()
                self._end(child)
                raise
            if isinstance(answer, CheckRefused) and answer.is_bug:
                self._end(child)
            else:
                self._rest(child)
        if isinstance(answer, CheckRefused):
            raise LoadFailed(answer.reason[:_MOST_REASON_CHARACTERS])
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
            if child.is_alive and self._may_read(version):
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

    async def _ask(self, child: "_Child", version: ModelVersion, kind: CheckKind) -> CheckAnswer:
        request = _request(version, kind, self._deadline_s, self._rules, self._machine_bytes)
        try:
            async with asyncio.timeout(self._deadline_s):
                return await child.ask(request)
        except TimeoutError:
            raise LoadFailed(
                f"{where(version)}: checking took longer than {self._deadline_s:g} s "
                f"while reading {_artefact_name(version)}"
            ) from None
        except (EOFError, ConnectionError):
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

    def __init__(self, process: MessageChild) -> None:
        self._process = process
        self.retirement: asyncio.TimerHandle | None = None

    @classmethod
    async def start(cls, sandbox: Sandbox | None) -> "_Child":
        program = ChildProgram(
            "server.fleet.checks.check_version",
            "modelyard checker",
            "checker",
            child_environment(sandbox),
        )
        process = await MessageChild.start(program)
        _end_first(process.pid)
        return cls(process)

    @property
    def is_alive(self) -> bool:
        return self._process.is_alive

    async def ask(self, request: CheckRequest) -> CheckAnswer:
        """Raises EOFError or ConnectionError if it ends, or answers anything else: then it has been
        taken over, and is killed."""
        if self.retirement is not None:
            self.retirement.cancel()
        payload = await self._process.ask(encode(request), MOST_ANSWER_BYTES)
        try:
            return decode_answer(payload)
        except ValueError as error:
            self._process.kill(f"sent an invalid message ({error}) and was killed")
            raise ConnectionError(str(error)) from None

    async def cause_of_death(self) -> str:
        """ "was killed by signal 11 (SIGSEGV)", in the words of an error message."""
        return await self._process.outcome()

    def kill(self) -> None:
        self._process.kill()

    async def end(self) -> None:
        """Hang up, upon which it ends; insist after a few seconds."""
        if self.retirement is not None:
            self.retirement.cancel()
        await self._process.stop(GRACE_S)


def _unexpected(version: ModelVersion, answer: CheckAnswer) -> LoadFailed:
    return LoadFailed(
        f"{where(version)}: the checker's answer ({type(answer).__name__}) cannot be read; its "
        "file may have taken the checking process over"
    )


def _end_first(pid: int) -> None:
    """Should memory run out, the kernel is to end this process and none that serves."""
    with suppress(OSError):
        Path(f"/proc/{pid}/oom_score_adj").write_text("1000")


def _artefact_name(version: ModelVersion) -> str:
    written = version.config.default_model_filename
    found = (name for name in FILES if (version.path / name).exists())
    return written or next(found, "its folder")


def _request(
    version: ModelVersion,
    kind: CheckKind,
    deadline_s: float,
    rules: ConfigCompletion,
    machine_bytes: int,
) -> CheckRequest:
    return CheckRequest(
        kind=kind,
        name=version.name,
        number=version.number,
        folder=str(version.folder),
        path=str(version.path),
        config=version.config.SerializeToString(),
        digest=version.digest,
        deadline_s=deadline_s,
        rules=rules,
        memory_bytes=MEMORY_BYTES,
        machine_bytes=machine_bytes,
    )
