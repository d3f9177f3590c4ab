"""Which Python environment a python model asks for: `EXECUTION_ENV_PATH` in its config, as in
Triton, or a `requirements.txt` beside its file."""

import os
from pathlib import Path
from typing import NamedTuple

from backends.artefact import refuse
from repository.model import ModelVersion
from repository.requirements import FILE

PARAMETER = "EXECUTION_ENV_PATH"
MODEL_DIRECTORY = "$$TRITON_MODEL_DIRECTORY"
"""Stands for the model's folder in the parameter's value."""


class DeclaredEnvironment(NamedTuple):
    """`path`: a folder or an archive, where the config names one; else `requirements`: a file."""

    path: Path | None
    requirements: Path | None

    def named_in(self, version: ModelVersion) -> str:
        """For people: the file or folder, below the model's own where it is there."""
        path = self.path or self.requirements
        assert path is not None
        if path.is_relative_to(version.folder):
            return str(path.relative_to(version.folder))
        return str(path)


def declared_environment(version: ModelVersion) -> DeclaredEnvironment | None:
    """What a python model's version declares; None where it runs on the server's own Python.

    Raises LoadFailed for a path that is neither absolute nor the model's own.
    """
    if PARAMETER in version.config.parameters:
        return DeclaredEnvironment(_named(version), None)
    requirements = version.path / FILE
    return DeclaredEnvironment(None, requirements) if requirements.is_file() else None


def _named(version: ModelVersion) -> Path:
    text = version.config.parameters[PARAMETER].string_value
    path = text.replace(MODEL_DIRECTORY, str(version.folder))
    if not os.path.isabs(path) or "\0" in path:
        refuse(
            version,
            f"parameter {PARAMETER} is '{text:.200}'; it must be an absolute path, or begin with "
            f"{MODEL_DIRECTORY}/ for a path in the model's folder",
        )
    return Path(os.path.normpath(path))
