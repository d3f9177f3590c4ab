"""What a gateway knows of its versions' health, on its disk: a restart does not forget it."""

import logging
import os
from pathlib import Path

import msgspec
from msgspec import Struct

from server.health.latencies import HourLatency
from server.health.policy import HealthFinding

NAME = "health.msgpack"

_log = logging.getLogger(__name__)


class RememberedVersion(Struct, frozen=True, array_like=True):
    """`digest` of its files; `findings` by reason code."""

    model: str
    version: int
    digest: str
    hours: tuple[HourLatency, ...]
    findings: tuple[tuple[str, HealthFinding], ...]


class KeptHealth(Struct, frozen=True):
    versions: tuple[RememberedVersion, ...] = ()


def read(state_dir: Path) -> KeptHealth:
    """What was kept, or nothing: it is found out anew."""
    path = state_dir / NAME
    try:
        return msgspec.msgpack.decode(path.read_bytes(), type=KeptHealth)
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:
        _log.warning("%s cannot be used: %s; the health of versions begins anew", path, error)
    return KeptHealth()


def write(state_dir: Path, kept: KeptHealth) -> None:
    """Replace what was kept; after a crash there is the old or the new. Raises OSError."""
    state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = state_dir / f"{NAME}.new"
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(msgspec.msgpack.encode(kept))
    fresh.replace(state_dir / NAME)
