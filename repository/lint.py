"""Everything wrong with a repository or one model folder that can be seen without loading it."""

import os
from collections.abc import Iterator
from pathlib import Path

from repository.config.field_rules import notes
from repository.config.positions import Positions
from repository.config.read import decode
from repository.config.step_parameters import STEPS
from repository.errors import BadRepository, ConfigError
from repository.files.plain_files import open_plain
from repository.findings import Finding
from repository.folders.read import FolderReader, FolderState
from repository.folders.snapshot import IGNORED, read_config
from repository.folders.walk import CONFIG_NAME
from repository.model import ModelConfig
from repository.policy import no_version_reason, select
from repository.requirements import FILE, MOST_BYTES, BadRequirements, read_requirements

FILELESS = frozenset({"identity", "ensemble", *STEPS})
"""Backends and platforms whose models need no file: their version folders may be empty."""


_WITHOUT_VERSION = ("E201", "E204", "E211")


def lint(path: Path) -> list[Finding]:
    """Every finding below `path`: a repository's root, or one model's folder.

    Artefacts are not opened. An unreadable `path` is a finding too; nothing is raised.
    """
    try:
        states = folders_at(path)
    except BadRepository as error:
        return [Finding(path, 0, 0, "E200", str(error))]
    return [finding for state in states for finding in _lint_model(state)]


def notes_at(state: FolderState, backend: str = "") -> list[Finding]:
    """What the config of a model's folder gives without an effect; `backend`: what serves it, ""
    where that is not known. A config that cannot be read has findings, and no notes."""
    where = state.folder / CONFIG_NAME
    try:
        config = read_config(state)
        text = decode(state.config, where) if state.config is not None else None
    except ConfigError:
        return []
    return notes(config, Positions(where, text), backend) if config is not None else []


def folders_at(path: Path) -> list[FolderState]:
    """The model folders below a repository's root, or `path` itself when it is one.

    Raises `BadRepository` when `path` cannot be listed.
    """
    reader = FolderReader()
    children = reader.repository(path)
    if not _is_model(path, children):
        return list(children.values())
    inside = os.path.realpath(path / os.pardir)
    state = reader.model(path.parent, path, path.resolve().name, inside)
    return [state] if state is not None else []


def _is_model(path: Path, children: dict[str, FolderState]) -> bool:
    return (path / CONFIG_NAME).exists() or any(name.isdecimal() for name in children)


def _lint_model(state: FolderState) -> Iterator[Finding]:
    yield from state.problems
    for name in state.ignored:
        yield Finding(state.folder / name, 0, 0, "E208", f"is ignored: {IGNORED}")
    try:
        config = read_config(state)
    except ConfigError as error:
        yield from error.findings
        config = None
    if not any(finding.code in _WITHOUT_VERSION for finding in state.problems):
        yield from _lint_versions(state, config)
    if config is not None:
        yield from _missing_files(state, config)


def _lint_versions(state: FolderState, config: ModelConfig | None) -> Iterator[Finding]:
    numbers = [version.number for version in state.versions]
    for version in state.versions:
        yield from _bad_requirements(state.folder / str(version.number), config)
        if not version.file_count and not (config and {config.backend, config.platform} & FILELESS):
            folder = state.folder / str(version.number)
            yield Finding(folder, 0, 0, "E209", "has no file in it; put the model there")
    if not numbers:
        accepted = f"put the model in '{state.name}/1/'"
        yield Finding(state.folder, 0, 0, "E201", f"'{state.name}' has no version; {accepted}")
    elif config is not None and not select(config, numbers):
        existing = ", ".join(map(str, numbers))
        problem = f"{no_version_reason(config)}; it has {existing}"
        yield _at(state, "version_policy", "E202", problem)


def _bad_requirements(folder: Path, config: ModelConfig | None) -> Iterator[Finding]:
    """Of a python model; what another one calls by that name is its own."""
    path = folder / FILE
    if not path.is_file() or not _is_python(folder, config):
        return
    try:
        with open(open_plain(path), "rb") as file:
            read_requirements(file.read(MOST_BYTES + 1))
    except BadRequirements as error:
        yield Finding(path, error.line, 1 if error.line else 0, "E303", error.text)
    except OSError as error:
        yield Finding(path, 0, 0, "E303", f"cannot be read: {error.strerror}")


def _is_python(folder: Path, config: ModelConfig | None) -> bool:
    """Whether python serves the version, as far as its config and the names of files tell."""
    if config is not None and config.backend:
        return bool(config.backend == "python")
    named = config.default_model_filename if config is not None else ""
    names = {"model.py", named if named.endswith(".py") else "model.py"}
    return any(os.path.isfile(folder / name) for name in names)


def _missing_files(state: FolderState, config: ModelConfig) -> Iterator[Finding]:
    for index, tensor in enumerate(config.output):
        name = tensor.label_filename
        if name and not os.path.isfile(state.folder / name):
            path = f"output[{index}].label_filename"
            yield _at(state, path, "E203", f"{path}: there is no '{state.folder / name}'")
    for index, sample in enumerate(config.model_warmup):
        for tensor in sample.inputs.values():
            file = state.folder / "warmup" / tensor.input_data_file
            if tensor.input_data_file and not os.path.isfile(file):
                path = f"model_warmup[{index}].inputs"
                yield _at(state, path, "E203", f"{path}: there is no '{file}'")


def _at(state: FolderState, path: str, code: str, message: str) -> Finding:
    where = state.folder / CONFIG_NAME
    text = decode(state.config, where) if state.config is not None else None
    line, column = Positions(where, text).at(path)
    return Finding(where, line, column, code, message)
