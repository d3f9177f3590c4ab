"""What versions were measured to take, by the digest of their files: kept across restarts.

Asked by `server.fleet.memory.grants` before a load; the estimate (`backends.footprint`) counts only
where nothing has been measured yet.
"""

import json
import logging
import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from backends.footprint import MemoryRequirement
from repository.model import ModelVersion

MOST_KEPT = 20_000
"""Records; the oldest go. One is 120 bytes on disk."""
FILE_NAME = "memory.json"

_log = logging.getLogger(__name__)


class MemoryMeasurements:
    """Bytes by version, device and number of instances: (resident, peak while loading). From any
    thread."""

    def __init__(self, state_dir: Path | None) -> None:
        """`state_dir`: None to keep nothing on disk."""
        self._path = None if state_dir is None else state_dir / FILE_NAME
        self._lock = threading.Lock()
        self._found: dict[str, tuple[int, int]] = _read(self._path)

    def need_of(self, version: ModelVersion, instances: int, device: str) -> MemoryRequirement:
        """Raises KeyError where nothing was measured."""
        resident, peak = self._found[_key(version, instances, device)]
        return MemoryRequirement(resident, resident, max(0, peak - resident))

    def record(
        self, version: ModelVersion, instances: int, device: str, resident: int, peak: int
    ) -> int:
        """Of what was measured more than once, the most counts; so many bytes are resident."""
        key = _key(version, instances, device)
        with self._lock:
            before = self._found.pop(key, (0, 0))
            now = (max(before[0], resident), max(before[1], peak))
            self._found[key] = now
            while len(self._found) > MOST_KEPT:
                del self._found[next(iter(self._found))]
            if now != before:
                self._write()
        return now[0]

    def _write(self) -> None:
        if self._path is None or not self._path.parent.is_dir():
            return
        beside = self._path.with_suffix(".tmp")
        try:
            beside.write_text(json.dumps(self._found, separators=(",", ":")))
            os.replace(beside, self._path)
        except OSError as error:
            _log.warning("what models were measured to take is not kept: %s", error)


def _key(version: ModelVersion, instances: int, device: str) -> str:
    return f"{version.config.backend}:{version.digest}:{device}:{instances}"


def _read(path: Path | None) -> dict[str, tuple[int, int]]:
    """What is unreadable is measured anew."""
    found: dict[str, tuple[int, int]] = {}
    if path is not None:
        with suppress(OSError, ValueError, TypeError):
            document: dict[str, Any] = json.loads(path.read_text())
            for key, (resident, peak) in document.items():
                if 0 < resident < 2**50 and 0 <= peak < 2**50:
                    found[str(key)] = (int(resident), int(peak))
    return found
