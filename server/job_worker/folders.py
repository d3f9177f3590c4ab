"""Where a machine's workers keep what is theirs, below the state folder.

<state>/jobs/broker/         messages, where the broker is a folder
<state>/jobs/scratch/        a folder for each worker that lives, and in it one for each attempt
<state>/jobs/environments/   of tools
"""

from pathlib import Path

from jobs.worker import orphans
from repository.sandbox.scratch import ScratchFolders
from server.settings.table import Settings

UMASK = 0o077
"""Of a worker: it makes nothing that others are to read."""


def broker_folder(settings: Settings) -> Path:
    """Of the broker that is used where none is named."""
    return _jobs(settings) / "broker"


def environments_folder(settings: Settings) -> Path:
    return _jobs(settings) / "environments"


def scratch_shelf(settings: Settings) -> Path:
    return _jobs(settings) / "scratch"


def clear_scratch(settings: Settings) -> None:
    """End what workers of this machine that were killed have left, and remove it. Raises
    OSError."""
    shelf = scratch_shelf(settings)
    orphans.clear(shelf, ScratchFolders(shelf))


def _jobs(settings: Settings) -> Path:
    return settings.state_dir.absolute() / "jobs"
