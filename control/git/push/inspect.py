"""Look at one model that lies in a draft: is it what this repository may serve? Executes nothing.

Findings name files as they are in the commit, not where the draft happens to lie.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath

from control.deployments.sealed_model import SealedVersion
from control.drift.profile_findings import profile_findings
from control.git.push.file_formats import allowing, file_findings
from control.git.push.pipeline_steps import NO_STEPS, DeclaredSteps, model_steps
from control.git.push.rollout_keys import rollout_findings
from control.git.push.version_checks import CheckFailed, VersionChecks
from control.repository_settings import RepositorySettings, Signing
from repository.code_use import ENVIRONMENT, NATIVE, CodeUse
from repository.config.callees import all_callees
from repository.config.positions import Positions
from repository.config.read import decode
from repository.errors import BadRepository, BadSignature, ConfigError, NoSigning
from repository.findings import Finding
from repository.folders.read import FolderReader
from repository.folders.snapshot import model_folder
from repository.folders.walk import CONFIG_NAME
from repository.lfs.threads import in_thread
from repository.lint import lint, notes_at
from repository.model import ModelVersion
from repository.signing import SIGNATURE, TrustedSigner, verify
from repository.snapshots.digest import FileEntry, digest, versions

ARTEFACT_CODE = "E300"


@dataclass(frozen=True, slots=True)
class ModelInspection:
    """What was found: `findings` refuse the model, `warnings` only tell the pusher.

    `versions` are sealed facts by number; `backends` what will serve each. `callees`: the models
    that it may call for whoever may use it, which its publisher must be allowed to use. `declared`:
    the steps of its pipeline.
    """

    findings: tuple[Finding, ...]
    warnings: tuple[Finding, ...]
    versions: Mapping[int, SealedVersion]
    backends: Mapping[int, str]
    callees: frozenset[str] = frozenset()
    declared: DeclaredSteps = NO_STEPS


class Inspector:
    """One repository's rules, applied to its models."""

    def __init__(
        self, checks: VersionChecks, settings: RepositorySettings, repository: str = ""
    ) -> None:
        """`repository`: its name, "" for imports."""
        self._checks = checks
        self._repository = repository
        self._settings = settings

    async def inspect(
        self, folder: Path, files: Sequence[FileEntry], shown: str
    ) -> ModelInspection:
        """The model in `folder` (`files` below it), which the pusher knows as `shown`."""
        found = await in_thread(self._files, folder, files, Path(shown))
        lints = await in_thread(_lint, folder)
        rollout = await in_thread(rollout_findings, folder)
        lints += [*rollout.wrong, *await in_thread(profile_findings, folder)]
        declared, wrong = await in_thread(self._steps, folder, shown)
        found += [_moved(one, folder, shown) for one in (*lints, *wrong)]
        signers, unsigned = await in_thread(self._signers, folder, shown, files)
        backends: dict[int, str] = {}
        callees: set[str] = set()
        if not found:
            for version in await in_thread(_versions_in, folder):
                callees |= all_callees(version.config)
                complaint, backends[version.number] = await self._artefact(version)
                found += [_moved(one, folder, shown) for one in complaint]
        if self._settings.signing == Signing.REQUIRE:
            found, unsigned = found + unsigned, []
        sealed = {
            number: SealedVersion(
                digest(entries),
                sum(entry.size_bytes for entry in entries),
                len(entries),
                _checks(backends.get(number, ""), self._settings.signing, signers.get(number)),
                signers.get(number, ""),
            )
            for number, entries in versions(files).items()
        }
        notes = await in_thread(_notes, folder, next(iter(backends.values()), ""))
        lines = [_moved(one, folder, shown) for one in (*rollout.gaps, *notes)]
        warnings = (*unsigned, *lines)
        used = frozenset(callees)
        return ModelInspection(tuple(found), warnings, sealed, backends, used, declared)

    def _files(self, folder: Path, files: Sequence[FileEntry], shown: Path) -> list[Finding]:
        formats = self._settings.formats
        return list(file_findings(folder, files, formats, shown, self._repository))

    def _steps(self, folder: Path, shown: str) -> tuple[DeclaredSteps, list[Finding]]:
        """Only a push has a pipeline."""
        if not self._repository:
            return NO_STEPS, []
        name = PurePath(shown).name
        return model_steps(folder, name, self._settings.formats, self._repository)

    async def _artefact(self, version: ModelVersion) -> tuple[list[Finding], str]:
        try:
            config = await self._checks.complete(version)
            uses = await self._checks.code_uses(version)
        except CheckFailed as error:
            return [Finding(version.path, 0, 0, ARTEFACT_CODE, str(error))], ""
        refused = [use for use in uses if use.format not in self._settings.formats]
        found = [
            await in_thread(_code_refused, version, config.backend, use, self._repository)
            for use in refused
        ]
        return found, config.backend

    def _signers(
        self, folder: Path, shown: str, files: Sequence[FileEntry]
    ) -> tuple[dict[int, str], list[Finding]]:
        """Who signed each version, and what is wrong with the signatures; blocks."""
        if self._settings.signing == Signing.OFF:
            return {}, []
        trusted = [
            TrustedSigner(f"trusted key {number}", pem.encode())
            for number, pem in enumerate(self._settings.trusted_keys, 1)
        ]
        signers, unsigned = {}, []
        for number in versions(files):
            place = folder / str(number)
            try:
                signers[number] = verify(place, place / SIGNATURE, trusted).signer
            except (BadSignature, NoSigning) as error:
                found = Finding(place / SIGNATURE, 0, 0, "E460", str(error))
                unsigned.append(_moved(found, folder, shown))
        return signers, unsigned


def _lint(folder: Path) -> list[Finding]:
    """What `lint` says of a model; it would take a folder that is none for a whole repository."""
    is_model = (folder / CONFIG_NAME).is_file() or any(
        entry.name.isdecimal() and entry.is_dir() for entry in folder.iterdir()
    )
    if is_model:
        return lint(folder)
    accepted = f"add {CONFIG_NAME} and a version folder such as 1/, or move it elsewhere"
    return [Finding(folder, 0, 0, "E204", f"is no model; {accepted}")]


def _notes(folder: Path, backend: str) -> list[Finding]:
    try:
        state = FolderReader().repository(folder.parent).get(folder.name)
    except BadRepository:
        return []  # lint has told
    return notes_at(state, backend) if state is not None else []


def _versions_in(folder: Path) -> Sequence[ModelVersion]:
    try:
        state = FolderReader().repository(folder.parent).get(folder.name)
        return model_folder(state).versions if state is not None else ()
    except (BadRepository, ConfigError):
        return ()  # lint has told


def _code_refused(version: ModelVersion, backend: str, use: CodeUse, repository: str) -> Finding:
    advice = allowing(repository, use.format)
    if use.format == NATIVE:
        place = _library_position(version, use.file)
        what = f"would load native code from '{use.file}' (model_operations.op_library_filename)"
    elif use.format == ENVIRONMENT:
        place = version.path, 0, 0
        what = f"would run packages of a Python environment ('{use.file}')"
    else:
        place = version.path, 0, 0
        what = f"would run code with the backend '{backend}'"
    if PurePath(use.file).suffix == ".pt2":
        what += f", in what '{use.file}' holds beside what torch.export writes"
        advice = f"export it again with torch.export.save and no code of its own, or {advice}"
    return Finding(*place, "E440", f"{what}, which this repository does not allow; {advice}")


def _library_position(version: ModelVersion, file: str) -> tuple[Path, int, int]:
    """Where the config names the library: the file, line and column."""
    where = version.path.parent / CONFIG_NAME
    number = list(version.config.model_operations.op_library_filename).index(file)
    try:
        text = decode(where.read_bytes(), where)
    except (OSError, ConfigError):  # what was read a moment ago
        return where, 0, 0
    path = f"model_operations.op_library_filename[{number}]"
    return where, *Positions(where, text).at(path)


def _checks(backend: str, signing: Signing, signer: str | None) -> dict[str, str]:
    """What was looked at, for the version's row."""
    checks = {"config": "passed", "artefact": "passed", "backend": backend}
    if signing != Signing.OFF:
        checks["signature"] = "good" if signer else "missing or wrong"
    return checks


def _moved(finding: Finding, folder: Path, shown: str) -> Finding:
    """The finding as the pusher can follow it: with paths of the commit."""
    path = str(finding.path).replace(str(folder), shown, 1)
    message = finding.message.replace(str(folder), shown).replace(str(folder.parent), "")
    return replace(finding, path=Path(path), message=message)
