"""Grammars compiled beside the engine's loop, on threads that end when idle.

Grammars that are kept compiled have a thread of their own, so that they wait for no other. The
library's work cannot be broken off: a compilation that passes the deadline fails its request, and
its thread is left to itself while another one goes on with the rest.
"""

import threading
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Protocol

from backends.llm.errors import GrammarInvalid
from backends.llm.grammar.spec import Grammar, GrammarSpec

STACK_BYTES = 512 << 20
"""Address space, taken as it is used: llguidance follows rules that name each other by recursion,
and overflowing the stack would end the process (4,000 of them do with the usual 8 MiB)."""
DEADLINE_S = 10.0
"""For one grammar. 500 properties take 0.1 s, beside whatever else the machine does."""
MOST_OVERDUE = 2
"""Compilations beyond their deadline that may still run, each on a core."""
_MOST_REMEMBERED = 64


class Compiler(Protocol):
    """Makes grammars, on several threads at once."""

    def prepare(self) -> None:
        """What takes long and belongs to no grammar."""

    def compile(self, spec: GrammarSpec) -> Grammar:
        """At the grammar's beginning. Raises GrammarInvalid naming the fault."""

    def has(self, spec: GrammarSpec) -> bool:
        """Whether `spec` is kept compiled."""


@dataclass(eq=False)
class _CompileTask:
    spec: GrammarSpec
    future: "Future[Grammar]" = field(default_factory=Future)
    is_done: bool = False
    is_overdue: bool = False


class GrammarThread:
    """Futures for grammars; a call returns at once. Cancelling one that has not begun drops it."""

    def __init__(self, compiler: Compiler, deadline_s: float = DEADLINE_S) -> None:
        overdue = _OverdueCompilations(deadline_s)
        self._compiler = compiler
        self._new = _CompileQueue(compiler, overdue)
        self._kept = _CompileQueue(compiler, overdue)

    def __call__(self, spec: GrammarSpec) -> "Future[Grammar]":
        """The future ends with a grammar of its own, or with GrammarInvalid."""
        lane = self._kept if self._compiler.has(spec) else self._new
        return lane.add(_CompileTask(spec))


class _CompileQueue:
    """Compiles in turn, on one thread at a time beside those that are overdue."""

    def __init__(self, compiler: Compiler, overdue: "_OverdueCompilations") -> None:
        self._compiler = compiler
        self._overdue = overdue
        self._tasks: deque[_CompileTask] = deque()
        self._lock = threading.Lock()
        self._working = False

    def add(self, task: _CompileTask) -> "Future[Grammar]":
        with self._lock:
            self._tasks.append(task)
            if not self._working:
                self._start()
        return task.future

    def _start(self) -> None:
        """With the lock held."""
        before = threading.stack_size(STACK_BYTES)
        self._working = True
        try:
            threading.Thread(target=self._work, name="grammars", daemon=True).start()
        except RuntimeError as error:
            self._working = False
            while self._tasks:
                _fail(self._tasks.popleft(), f"no grammar can be compiled: {error}")
        finally:
            threading.stack_size(before)

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._tasks:
                    self._working = False
                    return
                task = self._tasks.popleft()
            if not task.future.set_running_or_notify_cancel():
                continue
            self._compile(task)
            if task.is_overdue:  # another thread has taken over
                self._overdue.ended()
                return

    def _compile(self, task: _CompileTask) -> None:
        if reason := self._overdue.refusal(task.spec):
            task.future.set_exception(GrammarInvalid(reason))
            return
        timer = None
        try:
            self._compiler.prepare()
            timer = threading.Timer(self._overdue.deadline_s, self._leave, [task])
            timer.daemon = True
            timer.start()
            result: Grammar | GrammarInvalid = self._compiler.compile(task.spec)
        except GrammarInvalid as error:
            result = error
        except BaseException as error:  # noqa: BLE001 (its request gets it; the thread goes on)
            result = GrammarInvalid(f"the {task.spec.kind} cannot be compiled: {error}")
        with self._lock:
            if timer is not None:
                timer.cancel()
            if task.is_overdue:
                return
            task.is_done = True
        if isinstance(result, GrammarInvalid):
            task.future.set_exception(result)
        else:
            task.future.set_result(result)

    def _leave(self, task: _CompileTask) -> None:
        """The deadline has passed: fail the request, and go on without this thread."""
        with self._lock:
            if task.is_done:
                return
            task.is_overdue = True
            reason = self._overdue.began(task.spec)
            if self._tasks:
                self._start()
            else:
                self._working = False
        task.future.set_exception(GrammarInvalid(reason))


class _OverdueCompilations:
    """The compilations that have passed their deadline."""

    def __init__(self, deadline_s: float) -> None:
        self.deadline_s = deadline_s
        self._running = 0
        self._specs: deque[GrammarSpec] = deque(maxlen=_MOST_REMEMBERED)
        self._lock = threading.Lock()

    def began(self, spec: GrammarSpec) -> str:
        """Why its request fails."""
        with self._lock:
            self._running += 1
            self._specs.append(spec)
        return self._took_longer(spec)

    def ended(self) -> None:
        with self._lock:
            self._running -= 1

    def refusal(self, spec: GrammarSpec) -> str:
        """Why `spec` is not compiled; "" where it is."""
        with self._lock:
            if spec in self._specs:
                return self._took_longer(spec)
            if self._running >= MOST_OVERDUE:
                return (
                    f"the {spec.kind} cannot be compiled now: {self._running} others that took "
                    f"longer than {self.deadline_s:g} s are still being compiled; try again later"
                )
        return ""

    def _took_longer(self, spec: GrammarSpec) -> str:
        return (
            f"the {spec.kind} took longer than {self.deadline_s:g} s to compile; make it simpler "
            "(fewer alternatives, repetitions and combined patterns)"
        )


def _fail(task: _CompileTask, reason: str) -> None:
    if task.future.set_running_or_notify_cancel():
        task.future.set_exception(GrammarInvalid(reason))
