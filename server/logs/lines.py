"""Where log lines go, which of them, and how they look: one line each, for people or machines.

`LOG` is the process's log, as `logging` has one root. Set up by `server.app`; changed while the
server runs by the logging extension (`server.rest.endpoints.trace`, `server.grpc.trace`). What a
client wrote cannot forge a line: control characters come out escaped.
"""

import json
import logging
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from io import TextIOWrapper
from logging.handlers import WatchedFileHandler
from pathlib import Path
from typing import Any, TextIO

from repository.files.private import opener
from server.logs.recent import RECENT
from server.settings.table import Settings

CHATTY = ("watchfiles", "asyncio", "uvicorn.access", "urllib3")
"""Loggers of libraries whose news below a warning is of no use to an operator."""

_NOTHING = logging.CRITICAL + 1
_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


@dataclass(frozen=True, slots=True)
class LogSettings:
    """The log in Triton's terms. `file`: empty for stderr. `verbose_level`: 1 and more shows
    debug lines. `form`: one of FORMS."""

    file: str = ""
    info: bool = True
    warning: bool = True
    error: bool = True
    verbose_level: int = 0
    form: str = "text"

    def shows(self, level: int) -> bool:
        """Whether a record of this level is written; each level is switched by itself."""
        if level >= logging.ERROR:
            return self.error
        if level >= logging.WARNING:
            return self.warning
        return self.info if level >= logging.INFO else self.verbose_level > 0


def log_settings(settings: Settings) -> LogSettings:
    """What the command line asks for: `log_level` and up, without the levels switched off."""
    least = _LEVELS[settings.log_level]
    return LogSettings(
        file=settings.log_file,
        info=settings.log_info and least <= logging.INFO,
        warning=settings.log_warning and least <= logging.WARNING,
        error=settings.log_error,
        verbose_level=max(settings.log_verbose, int(least <= logging.DEBUG)),
        form=settings.log_format,
    )


class Log:
    """The process's log and its settings; `started` are those it was set up with."""

    def __init__(self) -> None:
        self.started = self.settings = LogSettings()
        self._handler: logging.Handler | None = None
        self._recent = RECENT

    def set_up(self, settings: LogSettings) -> None:
        """Write the log from now on. Raises OSError when the file cannot be opened."""
        self.started = settings
        self._handler = _handler(settings.file)
        for handler in (self._handler, self._recent):
            handler.filters = [lambda record: self.settings.shows(record.levelno)]
        logging.basicConfig(handlers=[self._handler, self._recent], force=True)
        for name in CHATTY:
            logging.getLogger(name).setLevel(logging.WARNING)
        self._apply(settings)

    def change(self, **changes: Any) -> None:
        """Change fields of the settings; takes effect with the next line."""
        self._apply(replace(self.settings, **changes))

    def _apply(self, settings: LogSettings) -> None:
        self.settings = settings
        if self._handler is not None:
            self._handler.setFormatter(FORMS[settings.form]())
            self._recent.setFormatter(FORMS[settings.form]())
            least = next((one for one in _LEVELS.values() if settings.shows(one)), _NOTHING)
            logging.getLogger().setLevel(least)


def _handler(file: str) -> logging.Handler:
    if not file:
        return _Stderr(sys.stderr)
    return _LogFile(Path(file).absolute(), encoding="utf-8")


class _Stderr(logging.StreamHandler[TextIO]):
    """A stderr that takes nothing (a file on a full disk, a reader that has gone) is no fault."""

    def handleError(self, record: logging.LogRecord) -> None:
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)


class _LogFile(WatchedFileHandler):
    """Opened anew when it was rotated away; a new file is for this user alone, while the mode of
    one that is there is the operator's to choose.

    While it cannot be written to, on a full disk for instance, lines go to stderr.
    """

    _failing = False

    def emit(self, record: logging.LogRecord) -> None:
        try:
            super().emit(record)
        except OSError:  # when it is opened anew
            self.handleError(record)

    def flush(self) -> None:
        super().flush()
        self._failing = False

    def handleError(self, record: logging.LogRecord) -> None:
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            super().handleError(record)
            return
        with suppress(OSError, ValueError):
            if not self._failing:
                sys.stderr.write(
                    f"modelyard: the log file '{self.baseFilename}' cannot be written "
                    f"({error.strerror}); its lines come here until it can\n"
                )
            self._failing = True
            sys.stderr.write(f"{self.format(record)}\n")

    def _open(self) -> TextIOWrapper:
        return open(self.baseFilename, "a", encoding=self.encoding, opener=opener)


LOG = Log()


def escaped(text: str) -> str:
    """The text with whatever does not print as itself in JSON's escapes, so that it is one line."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else json.dumps(one)[1:-1] for one in text)


class TextLine(logging.Formatter):
    """`2026-11-21T01:52:33.123Z INFO  server.fleet.version_swapper: digits 3: READY in 0.12 s, 2 ×
    cpu`

    A traceback follows on lines of its own, each behind a bar.
    """

    def format(self, record: logging.LogRecord) -> str:
        head = f"{_utc(record)} {record.levelname:<7} {escaped(record.name)}: "
        return head + escaped(record.getMessage()) + _traceback(self, record)


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
        return escaped(json.dumps(line, ensure_ascii=False))


class TritonLine(logging.Formatter):
    """`I0520 20:03:25.829575 3355 exchange.py:84] "digits 3: READY in 0.12 s, 2 × cpu"`"""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC)
        head = f"{_letter(record)}{moment:%m%d %H:%M:%S.%f} {_place(record)}"
        return head + _quoted(record) + _traceback(self, record)


class Iso8601Line(logging.Formatter):
    """`2024-05-20T20:03:25Z I 3355 exchange.py:84] "digits 3: READY in 0.12 s, 2 × cpu"`"""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC)
        head = f"{moment:%Y-%m-%dT%H:%M:%SZ} {_letter(record)} {_place(record)}"
        return head + _quoted(record) + _traceback(self, record)


FORMS: dict[str, Callable[[], logging.Formatter]] = {
    "text": TextLine,
    "json": JsonLine,
    "triton": TritonLine,
    "ISO8601": Iso8601Line,
}
"""What a line may look like: two forms of ours, two of Triton's."""


def _utc(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _letter(record: logging.LogRecord) -> str:
    """Triton's: I, W, E, and V for verbose."""
    return "V" if record.levelno < logging.INFO else record.levelname[0].replace("C", "E")


def _place(record: logging.LogRecord) -> str:
    return f"{record.process} {record.filename}:{record.lineno}] "


def _quoted(record: logging.LogRecord) -> str:
    return escaped(json.dumps(record.getMessage(), ensure_ascii=False))


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    if not record.exc_info:
        return ""
    lines = formatter.formatException(record.exc_info).splitlines()
    return "".join(f"\n  | {escaped(line)}" for line in lines)
