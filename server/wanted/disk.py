"""The last good desired state on this gateway's disk: it starts, and serves, without control."""

import logging
import os
from pathlib import Path

from control.desired import NOTHING, Desired, decode, encode

NAME = "desired.msgpack"

_log = logging.getLogger(__name__)


def read(state_dir: Path) -> Desired:
    """What was kept, or nothing; a damaged file is told of and left for a person to look at."""
    path = state_dir / NAME
    try:
        return decode(path.read_bytes())
    except FileNotFoundError:
        return NOTHING
    except (OSError, ValueError) as error:
        _log.error("%s cannot be used: %s; waiting for the control process", path, error)
        return NOTHING


def keep(state_dir: Path, desired: Desired) -> None:
    """Replace what was kept; after a crash there is the old one or the new one. Raises OSError."""
    state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = state_dir / f"{NAME}.new"
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(encode(desired))
        file.flush()
        os.fsync(file.fileno())
    os.replace(fresh, state_dir / NAME)
