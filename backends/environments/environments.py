"""Find, unpack or make the Python environment that a model declares. Blocks; on loading threads."""

import hashlib
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path

from backends.artefact import refuse
from backends.environments.build import BuildFailed, BuildStep, run_step
from backends.environments.declared import (
    PARAMETER,
    DeclaredEnvironment,
    declared_environment,
)
from backends.environments.install import platform
from backends.environments.packages import PackageBuild, SandboxOf, build_packages
from backends.environments.packages import Tell as Tell
from backends.environments.sources import PackageSources
from backends.environments.store import ENVIRONMENT, EnvironmentLease, EnvironmentStore
from backends.environments.unpack import root_of
from backends.process.interpreter import Interpreter
from repository.files.plain_files import open_plain
from repository.model import ModelVersion
from repository.requirements import (
    FILE,
    MOST_BYTES,
    BadRequirements,
    read_requirements,
    requirements_digest,
)

_log = logging.getLogger(__name__)
_NO_SOURCE = (
    "%s %d: its %s is not installed, and it runs on the server's own Python: packages of models "
    "that were pushed, imported or loaded by a request come only from where the server's operator "
    "says; see --environment-index and --environment-wheel-dir"
)


class PythonEnvironments:
    """The environments of one server's models."""

    def __init__(
        self,
        store: EnvironmentStore,
        sandbox_of: SandboxOf,
        load_secs: float,
        sources: PackageSources,
    ) -> None:
        self._store = store
        self._sources = sources
        self._sandbox_of = sandbox_of
        self._load_secs = load_secs

    def lease(self, version: ModelVersion, is_operators: bool, tell: Tell) -> "Leased | None":
        """What a version's workers run on; None for the server's own Python. To be closed once the
        instances hold it, or none will.

        `is_operators`: whether the operator wrote its config: what came from elsewhere may name
        nothing outside of its model's folder. Raises LoadFailed.
        """
        if version.config.backend != "python":
            return None
        declared = declared_environment(version)
        if declared is None:
            return None
        if declared.path is None:
            if not self._sources.builds:
                return None
            if is_operators or self._sources.are_named:
                return self._installed(version, declared, tell)
            _log.warning(_NO_SOURCE, version.name, version.number, FILE)
            return None
        path = declared.path
        real = Path(os.path.realpath(path))
        if not is_operators and not real.is_relative_to(os.path.realpath(version.folder)):
            refuse(
                version,
                f"parameter {PARAMETER} leads to '{path}'; a model that was pushed, imported or "
                "loaded by a request may name an environment in its own folder alone",
            )
        if path.is_dir():
            return Leased(_interpreter(version, declared, path, is_operators), None)
        if not path.is_file():
            refuse(version, f"parameter {PARAMETER} leads to '{path}', and nothing is there")
        return self._unpacked(version, declared, real, tell)

    def _unpacked(
        self, version: ModelVersion, declared: DeclaredEnvironment, archive: Path, tell: Tell
    ) -> "Leased":
        name = declared.named_in(version)
        until = time.monotonic() + self._load_secs

        def build(place: Path) -> None:
            tell(f"unpacking the environment {name}")
            target = place / ENVIRONMENT
            arguments = (str(archive), str(target), str(self._store.most_bytes))
            step = BuildStep(
                "backends.environments.unpack",
                arguments,
                place,
                self._sandbox_of(place, (str(archive),), False, False),
                {},
                until,
                self._store.most_bytes,
            )
            run_step(step, tell)
            if root_of(target) is None:
                raise BuildFailed("it has no bin/python, so it is no packed environment")

        lease = self._obtained(version, name, _digest(version, archive), build, until)
        try:
            root = root_of(lease.folder)
            if root is None:
                refuse(version, f"the environment {name} has lost its files; remove and load it")
            return Leased(_interpreter(version, declared, root, False), lease)
        except BaseException:
            lease.close()
            raise

    def _installed(
        self, version: ModelVersion, declared: DeclaredEnvironment, tell: Tell
    ) -> "Leased":
        sources = self._sources
        requirements = _requirements(version, declared)
        digest = requirements_digest(requirements, platform(), sources.key)
        name = declared.named_in(version)
        until = time.monotonic() + self._load_secs

        packages = PackageBuild(self._store, sources, self._sandbox_of, requirements, digest, until)

        def build(place: Path) -> None:
            build_packages(packages, place, tell)

        lease = self._obtained(version, name, digest, build, until)
        if not _runs(lease):  # the Python that it was made with has gone; the versions stay
            lease.close()
            self._store.remove(digest)
            lease = self._obtained(version, name, digest, build, until)
        if not _runs(lease):
            lease.close()
            refuse(version, f"the environment {name} has lost its Python, and others use it")
        readable = (os.path.realpath(lease.folder),)
        python = str(lease.folder / "bin" / "python")
        return Leased(Interpreter(python, readable, lends_numpy=True), lease)

    def _obtained(
        self,
        version: ModelVersion,
        name: str,
        digest: str,
        build: Callable[[Path], None],
        until: float,
    ) -> EnvironmentLease:
        try:
            return self._store.obtain(digest, name, build, until)
        except BuildFailed as error:
            refuse(version, f"the environment {name}: {error}")
        except TimeoutError:
            refuse(version, f"the environment {name} was still being made by another load")
        except OSError as error:
            refuse(version, f"the environment {name} cannot be kept: {error.strerror}")


def _runs(lease: EnvironmentLease) -> bool:
    return os.access(lease.folder / "bin" / "python", os.X_OK)


class Leased:
    """An interpreter, and what keeps its environment until the instances do."""

    def __init__(self, interpreter: Interpreter, lease: EnvironmentLease | None) -> None:
        self._lease = lease
        self._given = interpreter
        if lease is not None:
            interpreter = interpreter._replace(hold=lambda: lease.again().close)
        self.interpreter = interpreter

    def again(self) -> "Leased":
        """One more, while this one is open."""
        return Leased(self._given, None if self._lease is None else self._lease.again())

    def close(self) -> None:
        if self._lease is not None:
            self._lease.close()


def _interpreter(
    version: ModelVersion, declared: DeclaredEnvironment, root: Path, is_operators: bool
) -> Interpreter:
    """Of an environment whose root has been found. `is_operators`: then what its python leads to
    may be read as well, wherever that is."""
    python = root / "bin" / "python"
    if not os.access(python, os.X_OK):
        refuse(
            version,
            f"the environment {declared.named_in(version)} has no program bin/python; it must be "
            "a conda or virtual environment, or a tar.gz of one (conda-pack)",
        )
    readable = [os.path.realpath(root)]
    base = os.path.dirname(os.path.dirname(os.path.realpath(python)))
    if is_operators and base != "/":
        readable.append(base)
    return Interpreter(str(python), tuple(readable))


def _requirements(version: ModelVersion, declared: DeclaredEnvironment) -> tuple[str, ...]:
    assert declared.requirements is not None
    try:
        with open(open_plain(declared.requirements), "rb") as file:
            return read_requirements(file.read(MOST_BYTES + 1))
    except BadRequirements as error:
        refuse(version, f"{declared.named_in(version)}: {error}")
    except OSError as error:
        refuse(version, f"{declared.named_in(version)} cannot be read: {error.strerror}")


def _digest(version: ModelVersion, archive: Path) -> str:
    try:
        with open(open_plain(archive), "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        refuse(version, f"the environment {archive} cannot be read: {error.strerror}")
