"""The first message to a control process: the settings as they are in force."""

from pathlib import Path
from typing import Any

import msgspec

from server.settings.table import Settings


class ControlStart(msgspec.Struct, frozen=True, kw_only=True):
    """`server`: the id of the server whose control process it is. Relative paths in `settings` are
    sent as absolute ones."""

    server: str
    settings: Settings


def encode_start(start: ControlStart) -> bytes:
    return msgspec.msgpack.encode(start, enc_hook=_plain)


def decode_start(payload: bytes) -> ControlStart:
    """Raises SettingsError."""
    return msgspec.msgpack.decode(payload, type=ControlStart, dec_hook=_path)


def _plain(value: Any) -> str:
    if isinstance(value, Path):
        return str(value.absolute())
    raise NotImplementedError(f"{type(value).__name__} in a setting")


def _path(kind: type, value: Any) -> Path:
    if kind is Path:
        return Path(value)
    raise NotImplementedError(f"{kind.__name__} in a setting")
