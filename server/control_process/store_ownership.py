"""Whether the store on this disk is the one that the database means."""

import json
import os
import secrets
from pathlib import Path

from control.sql.engines import sqlite_path
from repository.files.durable import sync_folder
from repository.files.private import opener
from server.settings.table import Settings


class CannotControl(Exception):
    """The control process cannot start with these settings; names what is wrong."""


def check_database_file(settings: Settings) -> None:
    """A store that is there with no database beside it has lost it: a new one would be empty, and
    would look as if nothing had ever been deployed. Raises CannotControl."""
    path, mark = sqlite_path(settings.database_url), settings.store_folder / "store.json"
    if path is not None and mark.exists() and not path.exists():
        raise CannotControl(
            f"the database file {path} ({settings.source('database')}) is missing, and the store "
            f"{settings.store_folder} belongs to it; put it back, or restore a backup as "
            "docs/recovery.md says"
        )


def check_store(store_id: str, settings: Settings) -> None:
    """The store's own file must name the database's store, `store_id`, which is committed: a store
    marked for a database that forgot it could not be used again. Raises CannotControl.
    """
    path = settings.store_folder / "store.json"
    settings.store_folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        found = str(json.loads(path.read_text())["id"])
    except FileNotFoundError:
        _mark(path, store_id)
        return
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise CannotControl(f"{path} cannot be read: {error}; restore it from a backup") from error
    if found != store_id:
        raise CannotControl(
            f"the store {settings.store_folder} ({settings.source('store_dir')}) belongs to "
            f"another database: it is {found}, and this database's is {store_id}; servers that "
            "share a database share its store (--store-dir)"
        )


def _mark(path: Path, store: str) -> None:
    fresh = path.with_suffix(f".{secrets.token_hex(4)}")
    with open(fresh, "w", opener=opener) as file:
        file.write(json.dumps({"id": store}) + "\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(fresh, path)
    sync_folder(path.parent.resolve())
