"""The locks in the tree: every package of a tool environment with its exact version. Pure but for
reading the files."""

import re
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).with_name("locks")
_NAME = re.compile(r"[-_.]+")
_PIN = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([A-Za-z0-9.+!_]+)")
_INSTEAD = {"onnxruntime": ("onnxruntime-gpu",), "xgboost-cpu": ("xgboost",)}
"""Packages that bring the same modules, by the package that the lock names."""

InstalledVersion = Callable[[str], str]
"""The version of a package that an interpreter has; "" for none."""


class LockedPackage(NamedTuple):
    """One package. `version` may end in "+cpu": a build without CUDA."""

    name: str
    version: str

    def __str__(self) -> str:
        return f"{self.name}=={self.version}"


@cache
def pins(environment: str) -> tuple[LockedPackage, ...]:
    """Of the lock with this name. Raises FileNotFoundError for one that is not there."""
    lines = (FOLDER / f"{environment}.txt").read_text().splitlines()
    return tuple(_pin(line) for line in lines if line and not line.startswith("#"))


def names() -> tuple[str, ...]:
    """All environments that have a lock."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.txt")))


def missing(wanted: tuple[LockedPackage, ...], installed: InstalledVersion) -> list[LockedPackage]:
    """Those that an interpreter lacks or has in another version; a build of the same version, such
    as one for a GPU, is as good."""
    return [pin for pin in wanted if not _is_there(pin, installed)]


def canonical(name: str) -> str:
    """A package's name as indexes compare them."""
    return _NAME.sub("-", name).lower()


def _is_there(pin: LockedPackage, installed: InstalledVersion) -> bool:
    names = (pin.name, *_INSTEAD.get(pin.name, ()))
    return any(_release(installed(name)) == _release(pin.version) for name in names)


def _release(version: str) -> str:
    return version.partition("+")[0]


def _pin(line: str) -> LockedPackage:
    found = _PIN.fullmatch(line)
    if found is None:
        raise ValueError(f"a lock has the line {line!r}, which is no NAME==VERSION")
    version = found[2] if sys.platform == "linux" else _release(found[2])
    return LockedPackage(canonical(found[1]), version)
