"""Everything wrong with repositories or single models, their artefacts included.

`modelyard check` comes here. Folders and configs are `repository.lint`'s; the artefacts are read
by `server.fleet.checks.check`, in a process of its own.
"""

import asyncio
import os
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from pathlib import Path

from backends.environments.declared import PARAMETER
from backends.errors import LoadFailed
from backends.python.source import problems
from control.drift.profile_findings import profile_findings
from control.git.push.pipeline_steps import model_steps
from repository.errors import BadRepository, ConfigError
from repository.files.plain_files import open_plain
from repository.findings import Finding
from repository.folders.read import CONFIG_NAME, FolderReader, FolderState
from repository.folders.snapshot import model_folder
from repository.formats import installed
from repository.lint import lint, notes_at
from repository.model import ModelVersion
from repository.requirements import FILE as REQUIREMENTS_FILE
from repository.sandbox.enter import kernel
from repository.sandbox.policy import parser_sandbox
from server.cli.progress import ProgressLine
from server.fleet.checks.check import Checker
from server.fleet.checks.check_version import backend_name
from server.fleet.confine import home_secrets

LONGEST_SOURCE_BYTES = 1 << 24
SOURCE_CODE = "E301"
ARTEFACT_CODE = "E300"
"""The code of what an artefact says: it cannot be read, or contradicts its config."""


def find(paths: Sequence[Path]) -> list[Finding]:
    """Every finding below `paths`, each a repository or one model's folder, and the notes last.

    Nothing is raised: what cannot be read is a finding. Versions of a model whose config is
    broken are not opened.
    """
    found = list(chain.from_iterable(lint(path) for path in paths))
    states = list(chain.from_iterable(_states(path) for path in paths))
    found += _in_two_repositories(states)
    complained_of = {finding.path for finding in found}
    versions = chain.from_iterable(_versions(state) for state in states)
    opened = [version for version in versions if version.path not in complained_of]
    found += asyncio.run(_artefact_findings(opened))
    complained_of |= {finding.path for finding in found}
    found += [one for version in opened for one in _source_findings(version, complained_of)]
    found += [one for state in states for one in profile_findings(state.folder)]
    found += [one for state in states for one in _step_findings(state)]
    return found + [note for state in states for note in notes_at(state, _backend_of(state))]


def _step_findings(state: FolderState) -> list[Finding]:
    """What is wrong with the model's jobs.json; whether its pusher may have them is not known."""
    return model_steps(state.folder, state.name, formats=("python",), repository="")[1]


def _backend_of(state: FolderState) -> str:
    """What serves the model, "" where nothing does."""
    return next((name for one in _versions(state) if (name := _backend(one))), "")


def _states(path: Path) -> list[FolderState]:
    reader = FolderReader()
    try:
        states = reader.repository(path)
    except BadRepository:
        return []  # a finding of lint's
    if not _is_model(path, states):
        return list(states.values())
    absolute = path.absolute()
    state = reader.model(path.parent, path, absolute.name, os.path.realpath(absolute.parent))
    return [state] if state is not None else []


def _is_model(path: Path, children: dict[str, FolderState]) -> bool:
    return (path / CONFIG_NAME).exists() or any(name.isdecimal() for name in children)


def _in_two_repositories(states: Sequence[FolderState]) -> list[Finding]:
    first: dict[str, FolderState] = {}
    found = []
    for state in states:
        other = first.setdefault(state.name, state)
        if other.repository != state.repository:
            problem = f"model '{state.name}' is in '{other.repository}' too; keep one of them"
            found.append(Finding(state.folder, 0, 0, "E205", problem))
    return found


def _versions(state: FolderState) -> Sequence[ModelVersion]:
    try:
        return model_folder(state).versions
    except ConfigError:
        return ()  # findings of lint's


def _source_findings(version: ModelVersion, complained_of: set[Path]) -> list[Finding]:
    """What a python model's file says before it is run."""
    if version.path in complained_of or _backend(version) != "python":
        return []
    file = version.path / (version.config.default_model_filename or "model.py")
    try:
        with open(open_plain(file), "rb") as opened:
            source = opened.read(LONGEST_SOURCE_BYTES)
    except OSError as error:
        problem = f"cannot be read: {error.strerror}; a python model is the file {file.name}"
        return [Finding(file, 0, 0, SOURCE_CODE, problem)]
    found = problems(file.name, source, _modules_of(version))
    return [Finding(file, one.line, one.column, SOURCE_CODE, one.message) for one in found]


def _backend(version: ModelVersion) -> str:
    try:
        return backend_name(version)
    except LoadFailed:
        return ""


def _modules_of(version: ModelVersion) -> Callable[[str], bool]:
    """Which modules are there for its file; all, where it has an environment of its own."""
    if (version.path / REQUIREMENTS_FILE).is_file() or PARAMETER in version.config.parameters:
        return lambda _name: True
    return partial(_is_module, version.path)


def _is_module(folder: Path, name: str) -> bool:
    return (folder / name).is_dir() or (folder / f"{name}.py").is_file() or installed(name)


async def _artefact_findings(versions: Sequence[ModelVersion]) -> list[Finding]:
    checker = parsing_checker(versions)
    try:
        with ProgressLine("checking versions", len(versions)) as progress:
            checks = [_artefact_finding(checker, version, progress) for version in versions]
            answers = await asyncio.gather(*checks)
    finally:
        await checker.close()
    return [finding for finding in answers if finding is not None]


def parsing_checker(versions: Sequence[ModelVersion]) -> Checker:
    """A checker that may read these versions and little else."""
    readable = [str(version.path.resolve()) for version in versions]
    return Checker(sandbox=parser_sandbox(kernel(), home_secrets(), readable, everywhere=True))


async def _artefact_finding(
    checker: Checker, version: ModelVersion, progress: ProgressLine
) -> Finding | None:
    try:
        await checker.complete(version)
    except LoadFailed as error:
        return Finding(version.path, 0, 0, ARTEFACT_CODE, str(error))
    finally:
        progress.add()
    return None
