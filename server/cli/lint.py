"""Everything wrong with repositories or single models, their artefacts included.

`modelyard check` comes here. Folders and configs are `repository.lint`'s; the artefacts are read
by `server.fleet.checks.check`, in a process of its own.
"""

import asyncio
import os
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from backends.errors import LoadFailed
from repository.errors import BadRepository, ConfigError
from repository.findings import Finding
from repository.folders.read import CONFIG_NAME, FolderReader, FolderState
from repository.folders.snapshot import model_folder
from repository.lint import lint
from repository.model import ModelVersion
from repository.sandbox.enter import kernel
from repository.sandbox.policy import parser_sandbox
from server.fleet.checks.check import Checker
from server.fleet.confine import home_secrets

ARTEFACT_CODE = "E300"
"""The code of what an artefact says: it cannot be read, or contradicts its config."""


def find(paths: Sequence[Path]) -> list[Finding]:
    """Every finding below `paths`, each a repository or one model's folder.

    Nothing is raised: what cannot be read is a finding. Versions of a model whose config is
    broken are not opened.
    """
    found = list(chain.from_iterable(lint(path) for path in paths))
    states = list(chain.from_iterable(_states(path) for path in paths))
    found += _in_two_repositories(states)
    complained_of = {finding.path for finding in found}
    versions = chain.from_iterable(_versions(state) for state in states)
    opened = [version for version in versions if version.path not in complained_of]
    return found + asyncio.run(_artefact_findings(opened))


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


async def _artefact_findings(versions: Sequence[ModelVersion]) -> list[Finding]:
    readable = [str(version.path.resolve()) for version in versions]
    checker = Checker(sandbox=parser_sandbox(kernel(), home_secrets(), readable, everywhere=True))
    try:
        checks = [_artefact_finding(checker, version) for version in versions]
        answers = await asyncio.gather(*checks)
    finally:
        await checker.close()
    return [finding for finding in answers if finding is not None]


async def _artefact_finding(checker: Checker, version: ModelVersion) -> Finding | None:
    try:
        await checker.complete(version)
    except LoadFailed as error:
        return Finding(version.path, 0, 0, ARTEFACT_CODE, str(error))
    return None
