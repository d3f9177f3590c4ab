"""Windows on the disk while the control process cannot store them: a gateway that is killed then
finds them at its next start. While all is well nothing is written."""

import logging
import zlib
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from control.series.points import SeriesWindow
from repository.files import private

NAME = "series-backlog"
"""The folder, below the state folder: a file for each window, AT-BOOT. They are not synced to the
disk, so that they survive the process and not a power cut."""

_FRESH = ".new"

WindowKey = tuple[int, str]
"""Its `at` and its `boot`."""

_log = logging.getLogger(__name__)
_decoder = msgspec.msgpack.Decoder(SeriesWindow)


class WindowSpool:
    """Blocks; one thread at a time."""

    def __init__(self, state_dir: Path) -> None:
        self._folder = state_dir / NAME
        self._kept: set[WindowKey] = set()
        self._problem = ""

    def read(self, most: int) -> list[SeriesWindow]:
        """What the gateway before this one left, the newest `most`, oldest first; what cannot be
        read is removed. Never raises."""
        found = []
        try:
            paths = list(self._folder.iterdir())
        except OSError:
            return []
        for path in paths:
            if path.suffix == _FRESH:  # the process ended between writing and renaming it
                with suppress(OSError):
                    path.unlink()
                continue
            try:
                found.append(_decoder.decode(zlib.decompress(path.read_bytes())))
            except (OSError, ValueError, zlib.error) as error:
                _log.warning("a window of time series is lost: %s: %s", path, error)
                with suppress(OSError):
                    path.unlink(missing_ok=True)
        found.sort(key=lambda window: (window.at, window.boot))
        self._kept = {(window.at, window.boot) for window in found}
        return found[-most:]

    def empty(self) -> bool:
        """Whether there is no file."""
        return not self._kept

    def sync(self, windows: Mapping[WindowKey, SeriesWindow]) -> None:
        """Have files of these and no others. A disk that takes none is told of, once."""
        try:
            self._remove(self._kept - windows.keys())
            for key in windows.keys() - self._kept:
                self._write(key, windows[key])
            self._problem = ""
        except OSError as error:
            if str(error) != self._problem:
                self._problem = str(error)
                _log.error("time series that are not stored yet are not on the disk: %s", error)

    def _write(self, key: WindowKey, window: SeriesWindow) -> None:
        private.make_folder(self._folder)
        path = self._path(key)
        fresh = path.with_suffix(_FRESH)
        private.write(fresh, zlib.compress(msgspec.msgpack.encode(window), 1))
        fresh.replace(path)
        self._kept.add(key)

    def _remove(self, keys: Collection[WindowKey]) -> None:
        for key in keys:
            with suppress(OSError):
                self._path(key).unlink(missing_ok=True)
            self._kept.discard(key)

    def _path(self, key: WindowKey) -> Path:
        at, boot = key
        return self._folder / f"{at}-{boot}"
