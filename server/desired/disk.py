"""The last good desired state on this gateway's disk: it starts, and serves, without control."""

import logging
import os
from pathlib import Path

from control.desired import NOTHING, Desired, decode, encode

NAME = "desired.msgpack"
IN_FORCE = "in-force.msgpack"
"""What answers while something desired is not ready yet; there is none when all of it is."""

_log = logging.getLogger(__name__)


def read(state_dir: Path) -> Desired:
    """What was kept, or nothing; a damaged file is told of and left for a person to look at."""
    return _read(state_dir / NAME) or NOTHING


def read_in_force(state_dir: Path) -> Desired | None:
    """What answered when the process before this one ended, where that was not what is desired."""
    return _read(state_dir / IN_FORCE)


def _read(path: Path) -> Desired | None:
    try:
        return decode(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        _log.error("%s cannot be used: %s; waiting for the control process", path, error)
        return None


def keep(state_dir: Path, desired: Desired) -> None:
    """Replace what was kept; after a crash there is the old one or the new one. Raises OSError."""
    _keep(state_dir, NAME, desired)


def keep_in_force(state_dir: Path, in_force: Desired | None) -> None:
    """Replace what `read_in_force` will read; None for nothing. Raises OSError."""
    if in_force is None:
        (state_dir / IN_FORCE).unlink(missing_ok=True)
    else:
        _keep(state_dir, IN_FORCE, in_force)


def _keep(state_dir: Path, name: str, desired: Desired) -> None:
    state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = state_dir / f"{name}.new"
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(encode(desired))
        file.flush()
        os.fsync(file.fileno())
    os.replace(fresh, state_dir / name)
