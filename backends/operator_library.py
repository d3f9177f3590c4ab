"""Libraries of custom operators that a config names: native code, for worker processes alone."""

from pathlib import Path

from backends.artefact import inside, refuse
from backends.process.begin import is_worker
from repository.model import ModelVersion

_FIELD = "model_operations.op_library_filename"


def operator_library(version: ModelVersion, name: str) -> Path:
    """The library below the version's folder, else below the model's.

    Raises LoadFailed where there is none, and in any process that is not a worker.
    """
    path = inside(version, name, _FIELD)
    if not path.is_file():
        path = version.folder / name
        if not path.resolve().is_relative_to(version.folder.resolve()) or not path.is_file():
            refuse(version, f"{_FIELD} '{name}' is not in its folder")
    if not is_worker():
        refuse(
            version,
            f"{_FIELD} '{name}' is native code, which is loaded in a worker process only, never in "
            "this one",
        )
    return path
