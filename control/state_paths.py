"""Where gateway and control process meet: folders and sockets below the state folder."""

import json
import logging
import os
import secrets
from hashlib import sha256
from pathlib import Path

from repository.files.private import opener, tighten

LINK, API, HOOK, LOCK = "link.sock", "api.sock", "hook.sock", "control.lock"
"""In the folder of sockets: gateways, the command line, git's hooks; and who owns them all."""

SNAPSHOTS, GIT, LFS = "snapshots", "git", "lfs"
"""In the store."""

_LONGEST_PATH = 100  # of a Unix socket, which has room for 107 bytes

_log = logging.getLogger(__name__)


def close_folder(folder: Path) -> None:
    """Let nobody but this user into the state folder or the store; brief, never raises.

    A folder that belongs to somebody else, such as the mount of a volume, stays as it is; a warning
    says so, and what is made in it is closed file by file.
    """
    try:
        tighten(folder)
    except OSError as error:
        _log.warning(
            "other users can read %s, whose mode cannot be changed: %s; give it to the server's "
            "user "
            "(uid %d) with mode 0700",
            folder,
            error.strerror,
            os.geteuid(),
        )


def sockets(state_dir: Path) -> Path:
    """The folder for sockets, made private to this user. Raises OSError."""
    folder = socket_folder(state_dir)
    for one in (folder.parent, folder):
        one.mkdir(parents=True, exist_ok=True, mode=0o700)
    if folder.stat().st_uid != os.getuid():
        raise PermissionError(f"{folder} belongs to another user; remove it")
    folder.chmod(0o700)
    return folder


def socket_folder(state_dir: Path) -> Path:
    """`<state_dir>/run`, or, where that path is too long for a socket, one of this user below the
    temporary folder. Makes nothing."""
    folder = state_dir.absolute() / "run"
    if len(os.fsencode(folder / LINK)) <= _LONGEST_PATH:
        return folder
    name = sha256(os.fsencode(state_dir.resolve())).hexdigest()[:16]
    return Path("/tmp") / f"modelyard-{os.getuid()}" / name


def server_id(state_dir: Path) -> str:
    """This server's name among those that share a database; made once. Raises OSError."""
    path = state_dir / "server.json"
    state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        found = str(json.loads(path.read_text())["id"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        found = secrets.token_hex(8)
        fresh = path.with_suffix(".new")
        with open(fresh, "w", opener=opener) as file:
            file.write(json.dumps({"id": found}) + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, path)
    return found
