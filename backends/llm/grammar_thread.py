"""Grammars compiled beside the engine's loop, one by one, on a thread that ends when idle."""

import threading
from collections import deque
from concurrent.futures import Future

from backends.llm.errors import GrammarInvalid
from backends.llm.grammar import GrammarCompiler
from backends.llm.grammar_spec import Grammar, GrammarSpec

STACK_BYTES = 512 << 20
"""Address space, taken as it is used: llguidance follows rules that name each other by recursion,
and overflowing the stack would end the process (4,000 of them do with the usual 8 MiB)."""


class GrammarThread:
    """Futures for grammars; a call returns at once. Cancelling one that has not begun drops it."""

    def __init__(self, compiler: GrammarCompiler) -> None:
        self._compiler = compiler
        self._asked: deque[tuple[GrammarSpec, Future[Grammar]]] = deque()
        self._lock = threading.Lock()
        self._working = False

    def __call__(self, spec: GrammarSpec) -> "Future[Grammar]":
        """The future ends with a grammar of its own, or with GrammarInvalid."""
        future: Future[Grammar] = Future()
        with self._lock:
            self._asked.append((spec, future))
            if not self._working:
                self._working = True
                self._start()
        return future

    def _start(self) -> None:
        before = threading.stack_size(STACK_BYTES)
        try:
            threading.Thread(target=self._work, name="grammars", daemon=True).start()
        except RuntimeError as error:
            self._working = False
            self._asked.pop()[1].set_exception(
                GrammarInvalid(f"no grammar can be compiled: {error}")
            )
        finally:
            threading.stack_size(before)

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._asked:
                    self._working = False
                    return
                spec, future = self._asked.popleft()
            if future.set_running_or_notify_cancel():
                self._compile(spec, future)

    def _compile(self, spec: GrammarSpec, future: "Future[Grammar]") -> None:
        try:
            future.set_result(self._compiler.compile(spec))
        except GrammarInvalid as error:
            future.set_exception(error)
        except Exception as error:  # noqa: BLE001 (its request hears of it; the thread goes on)
            future.set_exception(GrammarInvalid(f"the {spec.kind} cannot be compiled: {error}"))
