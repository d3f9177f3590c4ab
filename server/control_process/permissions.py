"""Makes what the server keeps readable by its own user alone, when the control process starts.

Earlier builds, umasks and backups that were copied back have left files that others may read.
"""

import logging
from collections.abc import Iterator
from pathlib import Path

from control.sql.engines import sqlite_path
from control.state_paths import close_folder
from repository.files.private import tighten_tree
from server.settings.table import Settings

UMASK = 0o077
"""Of the control process, which makes nothing that others are to read, and of the git it runs."""

DATABASE_ENDINGS = ("", "-wal", "-shm", "-journal", ".migrating")
IN_STATE = ("server.json", "desired.msgpack", "run", "backing-up", "overrides", "jobs")
IN_STORE = ("store.json", "git", "hooks", "lfs", "snapshots", "imports", "jobs")
_SHOWN = 3

_log = logging.getLogger(__name__)


def close_state(settings: Settings) -> None:
    """Close state folder, store and database, file by file; blocks for a look at each.

    A state folder may hold what is not ours, a repository of models for instance: only the names
    that we use are looked at.
    """
    for folder in (settings.state_dir, settings.store_folder):
        close_folder(folder)
    foreign = [path for top in _kept(settings) for path in tighten_tree(top)]
    if foreign:
        _log.warning(
            "%d files of the server belong to another user, and others may read them: %s",
            len(foreign),
            ", ".join(foreign[:_SHOWN]) + (", …" if len(foreign) > _SHOWN else ""),
        )


def _kept(settings: Settings) -> Iterator[Path]:
    database = sqlite_path(settings.database_url)
    if database is not None:
        yield from (Path(f"{database}{ending}") for ending in DATABASE_ENDINGS)
    yield from (settings.state_dir / name for name in IN_STATE)
    yield from (settings.store_folder / name for name in IN_STORE)
