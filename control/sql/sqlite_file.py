"""Watches the file of a SQLite database: that it is there, is the same, and is whole.

SQLite goes on writing to a file that somebody has removed or replaced, and to one with damaged
pages; what it commits is lost then. So the file is looked at before each change and after its
commit, before anybody is told that it happened.

Never opens the file by itself: closing a descriptor of it would drop SQLite's locks on it.
"""

import logging
import os
import sqlite3
import threading
from collections.abc import Iterator, MutableMapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from control.errors import DatabaseDamaged, DatabaseGone

FILES = "files"
"""Where a connection's record keeps which files it has open."""

_HOW = (
    "Models are still served; nothing is changed any more. Save what can still be read (modelyard "
    "backup FILE), then restore as docs/recovery.md says"
)

_Id = tuple[int, int] | None

_log = logging.getLogger(__name__)


class SqliteFile:
    """The file of one database. Any thread may use it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problem = ""
        """In words; "" while all is well. Damage stays until a restart, as it may come and go with
        the pages that are looked at; a file that is put back is well again."""

        self._damaged = False
        self._first: _Id = None
        self._left: tuple[int, int, int] | None = None
        self._lock = threading.RLock()

    def opened(self, info: MutableMapping[str, Any]) -> None:
        """Note the files of a connection that was just made. Raises DatabaseDamaged."""
        own = _identity(self.path)
        with self._lock:
            self._first = self._first or own
            info[FILES] = own, _identity(self._wal)
        self.check(info)

    def may_connect(self) -> None:
        """Before another connection: SQLite would make a new file. Raises DatabaseDamaged."""
        with self._lock:
            if self._first is not None and _identity(self.path) != self._first:
                self._lost(self.path)

    def check(self, info: MutableMapping[str, Any]) -> None:
        """Whether the path still leads to the files of this connection. Raises DatabaseDamaged."""
        if self._damaged:
            raise DatabaseDamaged(self.problem)
        own, wal = info[FILES]
        with self._lock:
            if own != self._first or _identity(self.path) != own:
                self._lost(self.path)
            if _identity(self._wal) != wal:  # it stays for as long as any connection is open
                self._lost(self._wal)
            if self.problem:
                _log.info("the database file %s is back", self.path)
                self.problem = ""

    def check_before(self, info: MutableMapping[str, Any]) -> None:
        """`check`, before a change; and `verify`, when somebody else has written to the file.

        Raises DatabaseDamaged.
        """
        self.check(info)
        with self._lock:
            foreign = self._left != _left(self.path)
            if foreign:
                self.verify()
                self._left = _left(self.path)

    @contextmanager
    def committing(self, info: MutableMapping[str, Any]) -> Iterator[None]:
        """Around a commit, which may move pages into the file. Raises DatabaseDamaged after it."""
        with self._lock:
            yield
            self._left = _left(self.path)
        self.check(info)

    def verify(self) -> None:
        """Read every page, past every cache; blocks, some 0.1 s for 30 MB.

        Raises DatabaseDamaged; DatabaseGone when it cannot be opened now.
        """
        try:
            uri = f"{self.path.absolute().as_uri()}?mode=rw"
            with closing(sqlite3.connect(uri, uri=True, timeout=10)) as own:
                (found,) = own.execute("PRAGMA quick_check(1)").fetchone()
        except sqlite3.OperationalError as error:
            if not is_damage(error):
                raise DatabaseGone(f"the database {self.path} cannot be read: {error}") from error
            found = str(error)
        except sqlite3.DatabaseError as error:
            found = str(error)
        if found != "ok":
            self.damaged(found)

    def damaged(self, found: str) -> None:
        """Refuse every change from now on. Raises DatabaseDamaged."""
        self._damaged = True
        self._raise(f"the database file {self.path} is damaged ({found}). {_HOW}")

    @property
    def _wal(self) -> Path:
        return self.path.with_name(f"{self.path.name}-wal")

    def _lost(self, path: Path) -> None:
        what = "removed" if _identity(path) is None else "replaced by another"
        self._raise(f"the database file {path} was {what} while the server ran. {_HOW}")

    def _raise(self, problem: str) -> None:
        if problem != self.problem:
            self.problem = problem
            _log.error("%s", problem)
        raise DatabaseDamaged(problem)


def is_damage(error: BaseException | None) -> bool:
    """Whether SQLite says that the file is no database, or one with damaged pages."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def is_full(error: BaseException | None) -> bool:
    """Whether SQLite says that there is no room on the disk."""
    return bool(getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL)


def _identity(path: Path) -> _Id:
    try:
        info = os.stat(path)
    except OSError:
        return None
    return info.st_dev, info.st_ino


def _left(path: Path) -> tuple[int, int, int] | None:
    """What changes with every write."""
    try:
        info = os.stat(path)
    except OSError:
        return None
    return info.st_size, info.st_mtime_ns, info.st_ctime_ns
