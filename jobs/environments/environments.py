"""Find or build the environment of a job's tool. Blocks; on the job's thread."""

import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache, partial
from importlib import metadata
from pathlib import Path
from typing import NamedTuple, Self

from backends.environments.build import BuildFailed
from backends.environments.install import platform
from backends.environments.packages import PackageBuild, SandboxOf, Tell, build_packages
from backends.environments.sources import PackageSources
from backends.environments.store import EnvironmentLease, EnvironmentStore
from jobs.environments.locks import LockedPackage, missing, pins
from repository import tree
from repository.requirements import requirements_digest

SETTING = "--job-environment-timeout-secs"
CPU_TORCH = "https://download.pytorch.org/whl/cpu"
_TORCH = "torch"


class EnvironmentFailed(Exception):
    """A tool's environment cannot be made; its text says why and what would help."""


class ToolEnvironment(NamedTuple):
    """`python`: its interpreter. `readable`: folders that it needs. Closed once no process of the
    job runs any more: until then nobody removes it."""

    python: str
    readable: tuple[str, ...]
    lease: EnvironmentLease | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.lease is not None:
            self.lease.close()


class ToolEnvironments:
    """The environments of one worker's tools, in `store`, which others may share."""

    def __init__(
        self,
        store: EnvironmentStore,
        sandbox_of: SandboxOf,
        sources: PackageSources,
        build_secs: float,
        lock_of: Callable[[str], tuple[LockedPackage, ...]] = pins,
    ) -> None:
        self._store = store
        self._sandbox_of = sandbox_of
        self._sources = sources
        self._build_secs = build_secs
        self._lock_of = lock_of

    def obtain(self, name: str, tell: Tell, stopped: Callable[[], bool]) -> ToolEnvironment:
        """The environment of the lock `name`: our own interpreter where that has every package of
        it, else one that is built now unless it is there. Raises EnvironmentFailed."""
        wanted = self._lock_of(name)
        lacking = missing(wanted, installed_version)
        if not lacking:
            return ToolEnvironment(sys.executable, ())
        if not self._sources.builds:
            raise EnvironmentFailed(
                f"the tool environment '{name}' is not there, and --environment-builds=off forbids "
                f"to build it; install {_listed(lacking)} beside the server, or allow builds"
            )
        try:
            lease = self._built(name, wanted, tell, stopped)
        except BuildFailed as error:
            raise EnvironmentFailed(
                f"the tool environment '{name}' cannot be built: {error}{self._remedy(error)}"
            ) from error
        except TimeoutError as error:
            raise EnvironmentFailed(
                f"the tool environment '{name}' was still being built by another worker when "
                f"{SETTING} was over"
            ) from error
        except OSError as error:
            raise EnvironmentFailed(
                f"the tool environment '{name}' cannot be kept: {error.strerror}"
            ) from error
        folder = lease.folder.resolve()
        return ToolEnvironment(str(folder / "bin" / "python"), (str(folder),), lease)

    def _built(
        self, name: str, wanted: tuple[LockedPackage, ...], tell: Tell, stopped: Callable[[], bool]
    ) -> EnvironmentLease:
        requirements = tuple(map(str, wanted))
        digest = requirements_digest(requirements, platform(), (*self._sources.key, "tool"))
        until = time.monotonic() + self._build_secs
        build = PackageBuild(
            *(self._store, self._sources, self._sandbox_of, requirements, digest, until),
            *(SETTING, stopped),
        )
        made_of = f"tool environment {name}"
        return self._store.obtain(digest, made_of, partial(self._build, build, tell), until)

    def _build(self, build: PackageBuild, tell: Tell, place: Path) -> None:
        """From the sources as they are; where those have no torch without CUDA and the operator
        named none, also from where its makers keep it."""
        try:
            build_packages(build, place, tell)
        except BuildFailed as error:
            if self._sources.are_named or f"'{_TORCH}==" not in str(error):
                raise
            for path in place.iterdir():
                _remove(path)
            tell(f"building environment: asking {CPU_TORCH} for torch")
            build_packages(build._replace(sources=_WithTorch(*self._sources)), place, tell)

    def _remedy(self, error: BuildFailed) -> str:
        if self._sources.are_named and f"'{_TORCH}==" in str(error):
            return f"; name a source that has it, such as --environment-index={CPU_TORCH}"
        if "index cannot be reached" in str(error) or "no wheel" in str(error):
            return (
                "; name a package index that this machine reaches with --environment-index, or a "
                "folder of wheels with --environment-wheel-dir"
            )
        return ""


class _WithTorch(PackageSources):
    """pip's own configuration, and the index of torch's builds for CPUs."""

    def environment(self, inherited: Mapping[str, str], place: Path) -> dict[str, str]:
        own = super().environment(inherited, place)
        return own | {"PIP_EXTRA_INDEX_URL": f"{own.get('PIP_EXTRA_INDEX_URL', '')} {CPU_TORCH}"}


@cache
def installed_version(name: str) -> str:
    """Of a package beside this interpreter; "" for none."""
    with suppress(metadata.PackageNotFoundError):
        return metadata.version(name)
    return ""


def _listed(lacking: list[LockedPackage]) -> str:
    shown = ", ".join(map(str, lacking[:5]))
    return shown if len(lacking) <= 5 else f"{shown} and {len(lacking) - 5} more"


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        tree.remove(path)
    else:
        path.unlink()
