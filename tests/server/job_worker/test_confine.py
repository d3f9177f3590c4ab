"""What a job's process may read, as the settings say; nothing is confined here."""

import os
from pathlib import Path

from repository.sandbox.policy import visible
from server.job_worker.confine import job_sandbox
from server.settings.sources import read_settings


def test_of_the_folders_with_data_a_job_reads_what_it_was_given_alone(tmp_path: Path) -> None:
    data = tmp_path / "data"
    for name in ("given", "other"):
        (data / name).mkdir(parents=True)
    settings = read_settings({"job_data_dir": [str(data)]}, {}, tmp_path)
    made = job_sandbox(settings, tmp_path / "sockets", (str(data / "given"),), ())
    assert made is not None
    seen = set(visible(("/", *made.readable), made.hidden, _entries))
    assert str(data / "given") in seen
    above = {str(folder) for folder in (data, *data.parents)}
    assert not seen & {str(data / "other"), *above}


def _entries(folder: str) -> list[tuple[str, bool]]:
    try:
        with os.scandir(folder) as found:
            return [(one.name, one.is_symlink()) for one in found]
    except OSError:
        return []
