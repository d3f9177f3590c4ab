"""Code that serving a version would run, which takes an administrator's permission."""

from typing import NamedTuple

NATIVE = "native_library"
ENVIRONMENT = "python_environment"
"""Packages, or a whole Python, that a model brings or has installed."""


class CodeUse(NamedTuple):
    """Code that would run: the format it takes an administrator's permission for, and its file,
    relative to the version's folder or the model's, as the config has it."""

    format: str
    file: str
