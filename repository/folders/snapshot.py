"""From folders to a Snapshot: each model read, checked and given its digests, or its reason."""

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from itertools import count
from pathlib import Path
from types import MappingProxyType

from repository.config.positions import Positions
from repository.config.read import decode, parse
from repository.config.validate import validate
from repository.errors import BadRepository, ConfigError
from repository.files.bounded_reads import BoundedReads
from repository.findings import Finding, readable, reason
from repository.folders.presence import FolderKey, Root, States
from repository.folders.read import FolderReader, FolderState
from repository.model import ModelConfig, ModelFolder, ModelVersion, Snapshot

PATIENCE_S = 30.0
"""How long one look waits for a folder; 10,000 files on a local disk take 0.1 s."""

logger = logging.getLogger(__name__)


def scan(roots: Sequence[Path], sealed: bool = False) -> Snapshot:
    """One look at every repository, blocking; raises `BadRepository` when a root is unreadable.
    `sealed`: they are snapshots of ours (see `repository.folders.read`)."""
    scanner = Scanner(roots, sealed=sealed)
    return scanner.build(scanner.look())


class Scanner:
    """Looks at the same roots again and again; what has not changed is not read or parsed again.

    Not safe for two threads at once; its owner (`repository.folders.watch`) sees to that.
    """

    def __init__(self, roots: Sequence[Path], config_name: str = "", sealed: bool = False) -> None:
        self.roots = tuple(roots)
        self._reader = FolderReader(config_name, sealed)
        self._lists = BoundedReads(self._list)
        self._reads = BoundedReads(self._read)
        self._states: dict[FolderKey, FolderState | None] = {}
        self._built: dict[FolderKey, tuple[FolderState, ModelFolder | str]] = {}
        self._warned: set[Path] = set()
        self._revisions = count(1)

    def look(self) -> States:
        """Every model folder of every root; raises `BadRepository` when a root is unreadable."""
        states, roots = self.look_at_roots()
        for root in roots.values():
            if root.problem:
                raise BadRepository(root.problem)
        return states

    def look_at_roots(self, patience_s: float = PATIENCE_S) -> tuple[States, Mapping[int, Root]]:
        """Every model folder of every root that can be read, and how each root was found.

        A folder that takes longer than `patience_s` is as it was seen last until it has been read,
        and delays no other one; one that was not seen before has that as its problem.
        """
        listed = self._lists.all(range(len(self.roots)), patience_s)
        roots = {
            i: listed[i][0] if i in listed else self._silent(i) for i in range(len(self.roots))
        }
        keys = [(index, name) for index, (_, names) in listed.items() for name in names]
        read = self._reads.all(keys, patience_s)
        for index, name in self._states.keys() - keys:
            self._reader.forget(self.roots[index] / name)
        self._states = {
            key: read[key] if key in read else self._states.get(key) or self._late(key, patience_s)
            for key in keys
        }
        found = {key: state for key, state in self._states.items() if state is not None}
        return {(index, state.name): state for (index, _), state in found.items()}, roots

    def _list(self, index: int) -> tuple[Root, list[str]]:
        path = self.roots[index]
        try:
            info = os.stat(path)
            return Root(str(path), (info.st_dev, info.st_ino)), self._reader.names(path)
        except (BadRepository, OSError) as error:
            return Root(str(path), problem=_problem(path, error)), []

    def _read(self, key: FolderKey) -> FolderState | None:
        root, name = self.roots[key[0]], key[1]
        return self._reader.model(root, root / name, name, os.path.realpath(root))

    def _silent(self, index: int) -> Root:
        path = self.roots[index]
        return Root(str(path), problem=f"model repository '{path}' does not answer")

    def _late(self, key: FolderKey, patience_s: float) -> FolderState:
        root, name = self.roots[key[0]], readable(key[1])
        problem = f"takes longer than {patience_s:g} s to read; it is loaded once it has been"
        return FolderState(
            name, root, root / key[1], problems=(Finding(root / key[1], 0, 0, "E200", problem),)
        )

    def build(self, states: States, lost: Mapping[int, str] = MappingProxyType({})) -> Snapshot:
        """The Snapshot these folders make; it has a revision of its own. Of the models of a root
        in `lost` there is nothing but the reason."""
        self._built = {key: self._build(key, state) for key, state in states.items()}
        self._warned &= {state.folder / name for state in states.values() for name in state.ignored}
        twice = _in_two_roots(states.values())
        made = {
            key[1]: lost.get(key[0], result)
            for key, (_, result) in self._built.items()
            if key[1] not in twice
        }
        models = {name: item for name, item in made.items() if isinstance(item, ModelFolder)}
        problems = twice | {name: item for name, item in made.items() if isinstance(item, str)}
        strays = frozenset(state.name for state in states.values() if state.stray)
        return Snapshot(
            next(self._revisions),
            MappingProxyType(models),
            MappingProxyType(problems),
            strays=strays,
        )

    def _build(self, key: FolderKey, state: FolderState) -> tuple[FolderState, ModelFolder | str]:
        cached = self._built.get(key)
        if cached is not None and cached[0] == state:
            return cached
        self._warn(state)
        try:
            return state, model_folder(state)
        except ConfigError as error:
            return state, reason(error.findings)

    def _warn(self, state: FolderState) -> None:
        for name in state.ignored:
            path = state.folder / name
            if path not in self._warned:
                self._warned.add(path)
                logger.warning("ignoring %s: %s", path, IGNORED)


def _problem(path: Path, error: BadRepository | OSError) -> str:
    if isinstance(error, BadRepository):
        return str(error)
    remedy = "give a folder of model folders"
    return f"model repository '{path}' cannot be read: {error.strerror}; {remedy}"


IGNORED = "a version folder is named by a whole number ≥ 1 without leading zeros"


def model_folder(state: FolderState) -> ModelFolder:
    """The model in one folder; raises `ConfigError` with every problem found."""
    if state.problems:
        raise ConfigError(reason(state.problems), state.problems)
    return folder_with(state, read_config(state))


def folder_with(state: FolderState, config: ModelConfig) -> ModelFolder:
    """The model in one folder under this config, which is as written and breaks no rule."""
    return ModelFolder(
        name=state.name,
        repository=state.repository,
        folder=state.folder,
        config=config,
        versions=tuple(
            ModelVersion(
                name=state.name,
                number=version.number,
                folder=state.folder,
                path=state.folder / str(version.number),
                config=config,
                digest=version.digest,
            )
            for version in state.versions
        ),
        core_digest=_core_digest(config, state.side_digest),
        instances_digest=_instances_digest(config),
    )


def read_config(state: FolderState) -> ModelConfig:
    """The config as written, its name filled in; raises `ConfigError` with every rule it breaks."""
    if state.config is None:
        return ModelConfig(name=state.name)
    where = state.folder / state.config_name
    text = decode(state.config, where)
    config = parse(text, where)
    findings = validate(config, Positions(where, text), state.name)
    if findings:
        raise ConfigError(reason(findings), findings)
    config.name = state.name
    return config


def _in_two_roots(states: Iterable[FolderState]) -> dict[str, str]:
    """Per name that stands in more than one repository, the complaint that says where."""
    places: dict[str, list[FolderState]] = {}
    for state in states:
        places.setdefault(state.name, []).append(state)
    return {name: str(_twice(name, found)) for name, found in places.items() if len(found) > 1}


def _twice(name: str, places: list[FolderState]) -> Finding:
    roots = " and ".join(f"'{place.repository}'" for place in places)
    problem = f"model '{name}' is in more than one repository: {roots}; keep one of them"
    return Finding(places[0].folder, 0, 0, "E205", problem)


def _core_digest(config: ModelConfig, side_digest: str) -> str:
    core = ModelConfig()
    core.CopyFrom(config)
    core.ClearField("instance_group")
    core.ClearField("version_policy")
    return sha256(core.SerializeToString(deterministic=True) + side_digest.encode()).hexdigest()


def _instances_digest(config: ModelConfig) -> str:
    groups = ModelConfig(instance_group=config.instance_group)
    return sha256(groups.SerializeToString(deterministic=True)).hexdigest()
