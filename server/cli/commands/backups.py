"""`modelyard backup` and `modelyard restore`."""

import argparse
import os
import secrets
import sys
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from repository.files.durable import create, sync_folder
from server.cli.commands.client import ApiClient
from server.cli.commands.command import CliCommand, CommandFailed, argument
from server.cli.commands.output import MessageOutput, Shown
from server.cli.commands.state_folder import settings_of
from server.cli.progress import ProgressLine
from server.settings.table import Settings


class BackupFailed(CommandFailed):
    """The file for a backup cannot be made or filled; there is none."""


class RestoreFailed(CommandFailed):
    """The archive or the folders are not what they must be; nothing was changed."""


class RestoreNotInForce(CommandFailed):
    """The state is restored, and the gateway does not know yet what to serve of it."""


def backup(given: argparse.Namespace, api: ApiClient) -> Shown:
    """The file appears whole or not at all, and only its owner can read it."""
    path = None if given.FILE == "-" else Path(given.FILE)
    try:
        size = _write(api, path) if path else _copy(api, sys.stdout.buffer)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise BackupFailed(f"{path or 'stdout'} cannot be written: {error.strerror}") from error
    return (
        MessageOutput(f"{path}: {size} bytes", {"file": str(path), "size_bytes": size})
        if path
        else MessageOutput("")
    )


def _write(api: ApiClient, path: Path) -> int:
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = create(unfinished)
    try:
        with open(descriptor, "wb") as out:
            size = _copy(api, out)
            out.flush()
            os.fsync(out.fileno())
        os.replace(unfinished, path)
        sync_folder(path.parent.resolve())
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(unfinished)
        raise
    return size


def restore(given: argparse.Namespace, _: ApiClient) -> Shown:
    from control.backup.restore import restore as restore_archive
    from control.errors import ControlError
    from repository.git.errors import GitError

    os.umask(0o077)  # everything that is restored is for the server's user alone
    settings = settings_of(given)
    try:
        restore_archive(
            Path(given.FILE), settings.state_dir, settings.store_folder, settings.database_url
        )
    except (ControlError, GitError, OSError) as error:
        raise RestoreFailed(f"{given.FILE} was not restored: {error}") from error
    folder = str(settings.state_dir)
    try:
        _hand_over(settings)
    except (ControlError, OSError) as error:
        raise RestoreNotInForce(
            f"restored into {folder}; but what the server is to serve could not be noted there "
            f"({error}): it will be ready before it serves that"
        ) from error
    return MessageOutput(f"restored into {folder}", {"state_dir": folder})


def _hand_over(settings: Settings) -> None:
    """Desired state lies on the gateway's disk before it starts: it is ready when that serves."""
    from control.clock import utc_now
    from control.desired_rows import desired
    from control.sql.database import Database
    from server.desired import disk

    database = Database(settings.database_url)
    try:
        with database.reading() as session:
            disk.keep(settings.state_dir, desired(session, utc_now()))
    finally:
        database.close()


def _copy(api: ApiClient, out: BinaryIO) -> int:
    size = 0
    with ProgressLine("backup", unit=1 << 20, unit_name="MiB") as progress:
        for piece in api.download("POST", "/backup"):
            out.write(piece)
            size += len(piece)
            progress.add(len(piece))
    return size


COMMANDS = (
    CliCommand(
        "backup",
        "write the whole state of the running server to a tar file",
        backup,
        (argument("FILE", "The file to write; - for stdout."),),
    ),
    CliCommand(
        "restore",
        "fill an empty state folder from a backup; no server may be using it",
        restore,
        (
            argument("FILE", "The backup."),
            argument("--store-dir", "The store's folder, if not in the state folder."),
            argument(
                "--database",
                "Restore into this database instead of SQLite; one with a password is better "
                "given as MODELYARD_DATABASE.",
            ),
        ),
        alone=True,
    ),
)
