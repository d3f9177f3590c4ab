"""Where log lines go and how they look: one line each on stderr, for people or for machines."""

import json
import logging
import sys
from datetime import UTC, datetime

CHATTY = ("watchfiles", "asyncio", "uvicorn.access")
"""Loggers of libraries whose news below a warning is of no use to an operator."""


def set_up(level: str, form: str) -> None:
    """Log from `level` ("debug" … "error") on, as `form` "text" or "json"."""
    stream = logging.StreamHandler(sys.stderr)
    stream.setFormatter(JsonLine() if form == "json" else TextLine())
    logging.basicConfig(level=level.upper(), handlers=[stream], force=True)
    for name in CHATTY:
        logging.getLogger(name).setLevel(logging.WARNING)


class TextLine(logging.Formatter):
    """`2026-11-21T01:52:33.123Z INFO  server.exchange: digits 3: READY in 0.12 s, 2 × cpu`"""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        return _utc(record)


class JsonLine(logging.Formatter):
    """One object per line: time, level, logger, message and, if there is one, exception."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": _utc(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def _utc(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
