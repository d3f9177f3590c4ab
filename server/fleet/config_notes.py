"""Names in the log what a version's config gives without an effect."""

import logging

from repository.config.field_rules import notes
from repository.config.positions import Positions
from repository.folders.walk import CONFIG_NAME
from repository.model import ModelVersion

_log = logging.getLogger(__name__)


def log_notes(version: ModelVersion, backend: str) -> None:
    """Name in the log what the config gives without an effect."""
    found = notes(version.config, Positions(version.folder / CONFIG_NAME), backend)
    if found:
        text = "; ".join(note.message for note in found)
        _log.info("%s %d: %s: %s", version.name, version.number, CONFIG_NAME, text)
