"""Which lines of a target's modules are reached: a trace over a replay of its corpus."""

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

_ROOT = Path(__file__).resolve().parents[2]


class Lines:
    """Counts lines of the modules with these prefixes while it is entered.

    All lines are those that the compiler made code for, imported or not.
    """

    def __init__(self, packages: tuple[str, ...]) -> None:
        self._files = {str(path): _lines_of(path) for path in _files(packages)}
        self._seen: dict[str, set[int]] = {path: set() for path in self._files}

    def __enter__(self) -> "Lines":
        threading.settrace(self._enter)
        sys.settrace(self._enter)
        return self

    def __exit__(self, *error: object) -> None:
        sys.settrace(None)
        threading.settrace(None)

    def figures(self) -> tuple[int, int]:
        """Lines reached within functions, and all of them."""
        reached = sum(len(self._files[path] & seen) for path, seen in self._seen.items())
        return reached, sum(map(len, self._files.values()))

    def _enter(self, frame: FrameType, event: str, _: Any) -> Any:
        seen = self._seen.get(frame.f_code.co_filename)
        if seen is None:
            return None

        def line(frame: FrameType, event: str, _: Any) -> Any:
            seen.add(frame.f_lineno)
            return line

        return line


def _files(packages: tuple[str, ...]) -> Iterator[Path]:
    for package in packages:
        path = _ROOT.joinpath(*package.split("."))
        if path.is_dir():
            yield from sorted(path.glob("*.py"))
        else:
            yield path.with_suffix(".py")


def _lines_of(path: Path) -> set[int]:
    """The lines of functions' bodies; those of a module run when it is imported."""
    found: set[int] = set()
    waiting = [compile(path.read_text(), str(path), "exec")]
    while waiting:
        code = waiting.pop()
        inner = [one for one in code.co_consts if isinstance(one, CodeType)]
        waiting += inner
        if code.co_flags & 0x2:  # CO_NEWLOCALS: a function's, not a module's or a class's
            found |= {line for _, _, line in code.co_lines() if line} - {code.co_firstlineno}
    return found
