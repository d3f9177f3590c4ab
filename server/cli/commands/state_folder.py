"""Where a server's state lies, as `modelyard serve` would find it here: flag, variable, file."""

import argparse
import os
from pathlib import Path

from control import state_paths
from server.settings.sources import read_settings
from server.settings.table import Settings

_FLAGS = ("state_dir", "store_dir", "database")


def settings_of(given: argparse.Namespace) -> Settings:
    """What a server started here with these flags would be told. Raises SettingsError."""
    options = {name: getattr(given, name, None) for name in _FLAGS}
    flags = {name: text for name, text in options.items() if text is not None}
    return read_settings(flags, os.environ, Path.cwd())


def socket_of(given: argparse.Namespace) -> Path:
    """The API's socket of the server whose state folder is meant; as short as it can be said."""
    state_dir = settings_of(given).state_dir
    folder = state_paths.socket_folder(state_dir)
    if folder == state_dir.absolute() / "run":
        folder = state_dir / "run"
    return folder / state_paths.API
