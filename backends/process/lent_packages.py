"""What the server lends a worker that runs in an environment of its model's own.

Our own packages and those that only the worker uses come from the server, and are hidden again
before user code is imported, so that it finds its environment's own versions or none. Arrays cross
between the two: numpy and ml_dtypes are the environment's, and ml_dtypes the server's where it has
none. Runs in the environment; nothing but the standard library is imported before `start`.
"""

import json
import os
import sys
from collections.abc import Collection, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from backends.process.interpreter import REFUSED_STATUS
from repository.sandbox.enter import enter_from_environment

_OURS = frozenset(("backends", "repository"))
_PRIVATE = frozenset(("msgspec", "msgpack", "google", "tritonclient"))
_SHARED = frozenset(("ml_dtypes",))


class _ServerPackages:
    """Finds top-level packages of these names in the server's folders, and nothing else."""

    def __init__(self, names: Collection[str], folders: Sequence[str]) -> None:
        self._names = names
        self._folders = folders

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if path is not None or name not in self._names:
            return None
        return PathFinder.find_spec(name, self._folders, target)


_private: list[_ServerPackages] = []


def start(root: str, lent: str, *numbers_and_title: str) -> None:
    """Be the worker; the process ends in here."""
    enter_from_environment()
    sys.path.remove(root)
    folders, lends_numpy = json.loads(lent)
    folders.insert(0, root)
    _private.append(_ServerPackages(_OURS | _PRIVATE, folders))
    sys.meta_path.insert(0, _private[0])
    shared = _SHARED | {"numpy"} if lends_numpy else _SHARED
    sys.meta_path.append(_ServerPackages(shared, folders))
    try:
        import numpy  # noqa: F401 - asked for first, so that its lack is told as such
    except ImportError as error:
        told = " ".join(str(error).split())[-500:]
        sys.stderr.write(
            f"the environment of {sys.executable} has no numpy that can be imported, and tensors "
            f"are numpy arrays: install numpy there ({told})\n"
        )
        sys.stderr.flush()
        os._exit(REFUSED_STATUS)
    from backends.process.worker import main

    channel, heartbeats, parent = map(int, numbers_and_title[:3])
    main(channel, heartbeats, parent)
    sys.exit(0)


def withdraw() -> None:
    """From here on user code finds its own versions of what was lent to the worker alone; what we
    have imported goes on working. No-op in a worker on the server's own Python."""
    if not _private:
        return
    _read_options()
    sys.meta_path.remove(_private.pop())
    for name in list(sys.modules):
        if name.partition(".")[0] in _PRIVATE:
            del sys.modules[name]


def _read_options() -> None:
    """Have protobuf read the options of our messages now: it imports a module of its own for that,
    the first time that somebody asks, and keeps them as long as their descriptors."""
    from repository.model import ModelConfig

    waiting = [ModelConfig.DESCRIPTOR]
    while waiting:
        message = waiting.pop()
        if message in _descriptors:
            continue
        _descriptors.append(message)
        message.GetOptions()
        for field in message.fields:
            _descriptors.append(field)
            field.GetOptions()
            if field.message_type is not None:
                waiting.append(field.message_type)


_descriptors: list[Any] = []
