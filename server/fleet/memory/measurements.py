"""What versions were measured to take, by their files and config: kept across restarts.

Asked by `server.fleet.memory.grants` before a load; the estimate (`backends.footprint`) counts only
where nothing has been measured yet.
"""

import hashlib
import json
import logging
import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from backends.footprint import MemoryRequirement
from repository.model import ModelConfig, ModelVersion

MOST_KEPT = 20_000
"""Versions; the oldest go. One is 150 to 250 bytes on disk."""
MOST_READINGS = 5
"""Of one version; the latest stay."""
FILE_NAME = "memory.json"

Reading = tuple[int, int]
"""Bytes: resident, and the peak while it was loaded."""

_log = logging.getLogger(__name__)


class MemoryMeasurements:
    """Readings by version, device and number of instances. From any thread."""

    def __init__(self, state_dir: Path | None) -> None:
        """`state_dir`: None to keep nothing on disk."""
        self._path = None if state_dir is None else state_dir / FILE_NAME
        self._lock = threading.Lock()
        self._found: dict[str, list[Reading]] = _read(self._path)

    def need_of(self, version: ModelVersion, instances: int, device: str) -> MemoryRequirement:
        """Raises KeyError where nothing was measured."""
        resident, peak = _median(self._found[_key(version, instances, device)])
        return MemoryRequirement(resident, resident, max(0, peak - resident))

    def record(
        self, version: ModelVersion, instances: int, device: str, resident: int, peak: int
    ) -> int:
        """Of the latest readings the median counts, of two the lesser: one that was disturbed is
        corrected by the next. So many bytes are resident."""
        key = _key(version, instances, device)
        with self._lock:
            before = self._found.pop(key, [])
            now = self._found[key] = [*before, (resident, peak)][-MOST_READINGS:]
            while len(self._found) > MOST_KEPT:
                del self._found[next(iter(self._found))]
            if not before or _differ(_median(before), _median(now)):
                self._write()
        return _median(now)[0]

    def _write(self) -> None:
        if self._path is None or not self._path.parent.is_dir():
            return
        beside = self._path.with_suffix(".tmp")
        try:
            beside.write_text(json.dumps(self._found, separators=(",", ":")))
            os.replace(beside, self._path)
        except OSError as error:
            _log.warning("what models were measured to take is not kept: %s", error)


def _median(readings: list[Reading]) -> Reading:
    middle = (len(readings) - 1) // 2
    residents, peaks = (sorted(column)[middle] for column in zip(*readings, strict=True))
    return residents, peaks


def _differ(before: Reading, now: Reading) -> bool:
    """By more than a 32nd: less is not worth writing the file for."""
    return any(abs(one - other) * 32 > one for one, other in zip(before, now, strict=True))


def _key(version: ModelVersion, instances: int, device: str) -> str:
    """By whatever makes it take more or less: files, and the config's parameters."""
    config, backend = version.config, version.config.backend
    counts = ModelConfig(
        parameters=config.parameters,
        optimization=config.optimization,
        model_operations=config.model_operations,
        model_warmup=config.model_warmup,
        default_model_filename=config.default_model_filename,
    )
    written = hashlib.sha256(counts.SerializeToString(deterministic=True)).hexdigest()[:16]
    return f"{backend}:{version.digest}:{written}:{device}:{instances}"


def _read(path: Path | None) -> dict[str, list[Reading]]:
    """What is unreadable is measured anew."""
    found: dict[str, list[Reading]] = {}
    document: Any = {}
    if path is not None:
        with suppress(OSError, ValueError):
            document = json.loads(path.read_text())
    for key, readings in document.items() if isinstance(document, dict) else ():
        with suppress(ValueError, TypeError):
            read = [(int(resident), int(peak)) for resident, peak in readings][-MOST_READINGS:]
            if read and all(0 < one < 2**50 and 0 <= peak < 2**50 for one, peak in read):
                found[key] = read
    return found
