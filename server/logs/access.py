"""The access log: one JSON line per answered request, or per some of them; off unless asked for.

Front ends hand in an `AccessLogEntry` when an answer was handed to its socket; a thread writes.
When the log is off, no front end looks for it.
"""

import logging
import random
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, NamedTuple, TextIO

import orjson

from control.authentication.forwarded import HEADER, Networks, client_address
from repository.files.private import opener

MOST_WAITING = 10_000
"""Lines that may wait for a slow disk; what comes on top is dropped and counted."""
GONE = 499
"""Stands for the status of a request whose client went before it was answered (nginx's number)."""

_FORWARDED = (HEADER, HEADER.decode())

_log = logging.getLogger(__name__)


class AccessLogEntry(NamedTuple):
    """One request. Sizes are bytes of bodies as they travelled.

    `began_ns` (time.monotonic_ns): its head was there; `upload_us`: from then to its last byte;
    `duration_us`: from then to its answer. `status` is HTTP's, or the name of gRPC's. `principal`
    is the id of who asked, "" for anybody. `route` is the arm of a route that answered, as the
    response says it, "" without one.
    """

    protocol: str
    client: str
    method: str
    path: str
    status: int | str
    began_ns: int
    duration_us: int
    upload_us: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    id: str = ""
    model: str = ""
    version: str = ""
    principal: str = ""
    route: str = ""


class AccessLog:
    """Writes the entries it is given, or a random share of them."""

    def __init__(self, target: str, share: float, proxies: Networks = ()) -> None:
        """`target`: a file to append to, or "-" for standard output. `proxies`: those whose
        X-Forwarded-For is believed. Raises OSError."""
        self._share = share
        self._proxies = proxies
        self._waiting: deque[AccessLogEntry] = deque()
        self._dropped = 0
        self._news = threading.Event()
        self._ended = False
        self._own = target != "-"
        self._file: TextIO = (
            open(target, "a", encoding="utf-8", opener=opener)  # noqa: SIM115 (closed by close)
            if self._own
            else sys.stdout
        )
        self._thread = threading.Thread(target=self._write_all, name="access-log", daemon=True)
        self._thread.start()

    def chosen(self) -> bool:
        """Whether the next entry is wanted."""
        return self._share >= 1 or random.random() < self._share

    def client(self, peer: str, headers: Iterable[tuple[Any, Any]]) -> str:
        """Who made a request: the peer, or before a proxy that is trusted whom that one names.

        `peer`: address and port. Names and values of `headers` are text or, as HTTP/1.1 has them,
        bytes; names are in lower case.
        """
        if not self._proxies:
            return peer
        lines = [
            value if isinstance(value, str) else value.decode("latin-1")
            for name, value in headers
            if name in _FORWARDED
        ]
        return client_address(peer, lines, self._proxies)

    def write(self, entry: AccessLogEntry) -> None:
        """Take an entry; never blocks."""
        if len(self._waiting) >= MOST_WAITING:
            self._dropped += 1
            return
        self._waiting.append(entry)
        self._news.set()

    def close(self) -> None:
        """Write what waits, and end. Blocks as long as the disk does, 5 s at most."""
        self._ended = True
        self._news.set()
        self._thread.join(5)
        if self._own:
            self._file.close()

    def _write_all(self) -> None:
        while not self._ended or self._waiting:
            self._news.wait()
            self._news.clear()
            try:
                self._write_waiting()
            except OSError as error:
                _log.error("the access log cannot be written: %s", error)

    def _write_waiting(self) -> None:
        lines: list[str] = []
        ahead_ns = time.time_ns() - time.monotonic_ns()
        while self._waiting and len(lines) < MOST_WAITING:
            lines.append(line(self._waiting.popleft(), ahead_ns))
        if self._dropped:
            dropped, self._dropped = self._dropped, 0
            _log.warning("the access log fell behind and dropped %d requests", dropped)
        self._file.write("".join(lines))
        self._file.flush()


def line(entry: AccessLogEntry, ahead_ns: int) -> str:
    """The entry as a line of JSON; `ahead_ns` is what the wall clock is ahead of monotonic."""
    began = datetime.fromtimestamp((entry.began_ns + ahead_ns) / 1e9, UTC)
    fields: dict[str, Any] = {"time": began.isoformat(timespec="milliseconds")}
    fields.update(entry._asdict())
    del fields["began_ns"]
    return orjson.dumps(fields).decode() + "\n"
