"""Packages of which we want a module inside, without all that their `__init__` imports.

`tritonclient.grpc` imports grpcio and numpy for its client; we want its generated messages.
`uvicorn` imports its command line and supervisors; we want its HTTP protocol. Each is a shell in
our processes: the package with its path, and nothing run. The first name asked of it that is no
module inside runs its `__init__` after all, so that a python model finds the whole package.
"""

import importlib
import importlib.util
import sys
import threading
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.abc import Loader, MetaPathFinder
else:
    Loader = MetaPathFinder = object  # the module they stand in imports tempfile and more

PACKAGES = frozenset({"tritonclient.grpc", "uvicorn"})

PATIENCE_SECS = 30.0
"""Two threads may each wait for a module that the other imports; then one gives up."""

_MADE_BY_INIT = ("__all__", "__version__")


class _LazyPackage(ModuleType):
    """A package whose `__init__` waits, in its loader, until it is needed."""

    def __getattr__(self, name: str) -> Any:
        loader = self.__loader__
        dunder = name.startswith("__") and name not in _MADE_BY_INIT
        if dunder or not isinstance(loader, _LazyPackageLoader):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        if loader.ran_elsewhere() and name in self.__dict__:
            return self.__dict__[name]
        if loader.ran:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        inside = f"{self.__name__}.{name}"
        if importlib.util.find_spec(inside) is not None:
            return importlib.import_module(inside)
        loader.run(self)
        return getattr(self, name)


class _LazyPackageLoader(Loader):
    def __init__(self, real: Loader) -> None:
        self._real = real
        self.ran = False
        self._claim = threading.Lock()
        self._runner = 0
        self._done = threading.Event()

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _LazyPackage(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing yet."""

    def run(self, module: ModuleType) -> None:
        """Run the package's `__init__`, once; a second thread waits for it."""
        with self._claim:
            first, self.ran = not self.ran, True
            self._runner = self._runner or threading.get_ident()
        if not first:
            self.ran_elsewhere()
            return
        try:
            self._real.exec_module(module)
        finally:
            self._done.set()

    def ran_elsewhere(self) -> bool:
        """Whether another thread has run it; waits while one does, unless that waits for us."""
        if not self.ran or self._runner == threading.get_ident():
            return False
        return self._done.wait(PATIENCE_SECS)


class _LazyPackageFinder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in PACKAGES:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _LazyPackageLoader(spec.loader)
        return spec


def install() -> None:
    """From now on in this process, for packages not imported yet."""
    if not any(isinstance(finder, _LazyPackageFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _LazyPackageFinder())
