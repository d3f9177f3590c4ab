"""Hides our own packages from user code, so that a model may have a `server.py` of its own."""

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

from backends.process.lent_packages import withdraw

_HOUSE = frozenset(
    (
        *("modelyard", "server", "admin_ui", "schedulers", "jobs", "control", "backends"),
        *("repository", "migrations"),
    )
)
_ROOT = Path(__file__).resolve().parents[2]


class _UserModuleFinder:
    """Finds modules with our packages' names everywhere but in our own folder."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if path is not None or name not in _HOUSE:
            return None
        spec = PathFinder.find_spec(name, _paths_elsewhere(), target)
        if spec is None or spec.loader is None:  # a bare folder does not count
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return spec


def hide_house() -> None:
    """From here on `import server` and its siblings find the user's modules, or nothing.

    What we have imported goes on working; we cannot import anything more of ours.
    """
    withdraw()
    for name in list(sys.modules):
        if name.partition(".")[0] in _HOUSE:
            del sys.modules[name]
    if _ROOT.name != "site-packages":
        sys.path[:] = _paths_elsewhere()
    if not any(isinstance(finder, _UserModuleFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _UserModuleFinder())


def _paths_elsewhere() -> list[str]:
    return [entry for entry in sys.path if Path(entry).resolve() != _ROOT]
