"""A Python beside the server's own, in which a model's worker runs."""

import sys
from collections.abc import Callable
from typing import NamedTuple

VARIABLE = "MODELYARD_INTERPRETER"
REFUSED_STATUS = 79
"""A worker that cannot run on the Python it was given ends with this; its last line says why."""


def version_tag() -> str:
    """What an interpreter must have in common with ours: "cpython-311"."""
    return str(sys.implementation.cache_tag)


def nothing() -> None:
    """There is nothing to release."""


class Interpreter(NamedTuple):
    """`python`: the program. `readable`: folders that it needs. `lends_numpy`: whether the server's
    numpy stands in where the environment has none. `hold()`: called by each instance that runs on
    it, returns what ends that: until then nobody may remove the environment."""

    python: str
    readable: tuple[str, ...]
    lends_numpy: bool = False
    hold: Callable[[], Callable[[], None]] = lambda: nothing
