"""What child processes print, line by line into our log, under the name of a process.

Lines and their rate are bounded: a process that floods stdout is read and dropped, so that neither
it nor the server waits. `pb_utils.Logger` marks its level in front of a line.
"""

import logging
import os
from typing import NamedTuple

LEVEL_MARK = "\x1e"
LEVELS = {
    "I": logging.INFO,
    "W": logging.WARNING,
    "E": logging.ERROR,
    "V": logging.DEBUG,
}
_LINE_BYTES = 8 * 1024
_LINES_PER_SECOND = 200
_READ_BYTES = 64 * 1024
_STACK = "Stack (most recent call first):"
"""How faulthandler begins the stack of a process that a signal met."""

_log = logging.getLogger("modelyard.worker")


class OutputLine(NamedTuple):
    """One line to log, and at which level."""

    level: int
    text: str


class LineSplitter:
    """Cuts a stream into lines, at most `_LINES_PER_SECOND` of them; pure but for its buffer.

    `last` is the last line that was not empty; the head of a fatal Python error stays, with the
    first place it names, because the dump behind it says less. The dump of a worker that is told
    to end while it hangs is no word of the model's.
    """

    def __init__(self, level: int) -> None:
        self.last = ""
        self._level = level
        self._rest = b""
        self._second = 0
        self._taken = 0
        self._dropped = 0
        self._fatal = False
        self._dump = False

    def feed(self, chunk: bytes, now: float) -> list[OutputLine]:
        """The lines that end in `chunk`; an empty chunk is the stream's end."""
        if int(now) != self._second:
            self._second, self._taken = int(now), 0
        *whole, self._rest = (self._rest + chunk).split(b"\n")
        if len(self._rest) >= _LINE_BYTES or not chunk:
            whole.append(self._rest)
            self._rest = b""
        allowed = max(0, _LINES_PER_SECOND - self._taken)
        taken = [line for raw in whole[:allowed] if (line := self._line(raw))]
        self._taken += len(taken)
        lost = len(whole) - allowed
        if lost > 0:
            self._line(next((raw for raw in reversed(whole) if raw), b""))
            self._dropped += lost
        elif self._dropped and allowed:
            taken.insert(0, self._drop_notice())
        if not chunk and self._dropped:
            taken.append(self._drop_notice())
        return taken

    def _drop_notice(self) -> OutputLine:
        dropped, self._dropped = self._dropped, 0
        return OutputLine(logging.WARNING, f"({dropped} lines dropped: more than 200 in a second)")

    def _line(self, raw: bytes) -> OutputLine | None:
        text = raw[:_LINE_BYTES].decode("utf-8", "replace").rstrip()
        if not text:
            return None
        level = self._level
        if text[0] == LEVEL_MARK:
            level, text = LEVELS.get(text[1:2], level), text[2:].removeprefix(" ")
        self._remember(text)
        return OutputLine(level, text)

    def _remember(self, text: str) -> None:
        self._dump = text == _STACK or (self._dump and text.startswith("  File "))
        if self._dump and not self._fatal:
            return
        if text.startswith("Fatal Python error"):
            self._fatal = True
            self.last = text
        elif not self._fatal:
            self.last = text
        elif text.lstrip().startswith("File ") and " at " not in self.last:
            self.last += f" at {text.strip()}"


class PipeLogger:
    """Carries one pipe to the log; lives on the thread of `outputs()`."""

    def __init__(self, fd: int, level: int, name: str) -> None:
        os.set_blocking(fd, False)
        self.lines = LineSplitter(level)
        self._fd = fd
        self._name = name

    def pump(self, now: float) -> bool:
        """Log what there is; False when the pipe has ended."""
        try:
            chunk = os.read(self._fd, _READ_BYTES)
        except BlockingIOError:
            return True
        for line in self.lines.feed(chunk, now):
            _log.log(line.level, "%s: %s", self._name, line.text)
        return bool(chunk)
