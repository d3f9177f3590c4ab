"""The last lines that a job's process printed. Pure: bytes in, lines out."""

from collections import deque

MOST_LINES = 200
MOST_LINE_BYTES = 2048


class OutputTail:
    """Keeps the last `MOST_LINES` lines of a stream, each cut to `MOST_LINE_BYTES`, and counts all
    its bytes. Lines that a program overwrites with a carriage return count as their last state."""

    def __init__(self) -> None:
        self.total_bytes = 0
        self._lines: deque[str] = deque(maxlen=MOST_LINES)
        self._untaken: deque[str] = deque(maxlen=MOST_LINES)
        self._rest = b""

    def feed(self, chunk: bytes) -> None:
        """Take what was read."""
        self.total_bytes += len(chunk)
        *whole, rest = (self._rest + chunk).split(b"\n")
        for line in whole[-MOST_LINES:]:
            self.add(_text(line))
        self._rest = rest[:MOST_LINE_BYTES] if b"\r" not in rest else rest[-MOST_LINE_BYTES:]

    def add(self, text: str) -> None:
        """Take a text from elsewhere, as lines; empty ones are dropped."""
        for line in filter(None, text.splitlines()[-MOST_LINES:]):
            kept = printable(line[:MOST_LINE_BYTES])
            self._lines.append(kept)
            self._untaken.append(kept)

    def end(self) -> None:
        """Nothing comes any more: the last line is whole, whether it was ended or not."""
        self.add(_text(self._rest))
        self._rest = b""

    def take(self) -> list[str]:
        """Of the lines that have come since the last call, the last `MOST_LINES`."""
        taken = list(self._untaken)
        self._untaken.clear()
        return taken

    def lines(self) -> list[str]:
        """The oldest first."""
        return list(self._lines)


def printable(text: str) -> str:
    """Without what would move a terminal's cursor or change its colours."""
    return "".join(one if one.isprintable() or one == "\t" else "�" for one in text)


def _text(line: bytes) -> str:
    line = line.rstrip(b"\r").rpartition(b"\r")[2]
    return printable(line[:MOST_LINE_BYTES].decode("utf-8", "replace").rstrip())
