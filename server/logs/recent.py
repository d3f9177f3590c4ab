"""The last lines of this process's log, kept in memory for who asks over the control API."""

import logging
import time
from collections import deque

from control.gateways.queries import LogLine, LogLines, LogQuery

MOST_LINES, MOST_CHARACTERS = 2000, 2000
"""What is kept at most: so many lines, and of each so many characters."""


class RecentLines(logging.Handler):
    """Keeps each line as the log writes it: in the form, and of the levels, that are set."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: deque[LogLine] = deque(maxlen=MOST_LINES)
        self._number = time.time_ns() // 1_000_000

    def emit(self, record: logging.LogRecord) -> None:
        text = self.format(record)
        if len(text) > MOST_CHARACTERS:
            text = text[: MOST_CHARACTERS - 1] + "…"
        self._number += 1
        self._kept.append(LogLine(self._number, record.created, record.levelname, text))

    def answer(self, query: LogQuery) -> LogLines:
        """Called on any thread."""
        self.acquire()
        try:
            found = [line for line in self._kept if line.number > query.after]
        finally:
            self.release()
        return LogLines(tuple(found[-query.limit :]))


RECENT = RecentLines()
