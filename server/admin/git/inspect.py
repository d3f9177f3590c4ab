"""Look at one model that lies in a draft: is it what this repository may serve? Executes nothing.

Findings name files as they are in the commit, not where the draft happens to lie.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from backends.artefact import artefact_path
from backends.errors import LoadFailed
from control.repository_settings import FORMATS, RepositorySettings, Signing, formats_of
from control.sealed import SealedVersion
from repository.errors import BadRepository, BadSignature, ConfigError, NoSigning
from repository.findings import Finding
from repository.folders import FolderReader
from repository.lfs.threads import in_thread
from repository.lint import lint
from repository.model import ModelVersion
from repository.signing import SIGNATURE, Trusted, verify
from repository.snapshot import model_folder
from repository.snapshots.digest import FileEntry, digest, versions
from repository.walk import CONFIG_NAME, hidden
from server.admin.git.rollout_keys import rollout_findings
from server.admin.git.torch_archive import brings_code
from server.fleet.check import Checker

ARTEFACT_CODE = "E300"


@dataclass(frozen=True, slots=True)
class Inspected:
    """What was found: `findings` refuse the model, `warnings` only tell the pusher.

    `versions` are sealed facts by number; `backends` what will serve each.
    """

    findings: tuple[Finding, ...]
    warnings: tuple[Finding, ...]
    versions: Mapping[int, SealedVersion]
    backends: Mapping[int, str]


class Inspector:
    """One repository's rules, applied to its models."""

    def __init__(self, checker: Checker, settings: RepositorySettings) -> None:
        self._checker = checker
        self._settings = settings

    async def inspect(self, folder: Path, files: Sequence[FileEntry], shown: str) -> Inspected:
        """The model in `folder` (`files` below it), which the pusher knows as `shown`."""
        found = list(self._formats(files, Path(shown)))
        lints = await in_thread(_lint, folder)
        lints += await in_thread(rollout_findings, folder)
        found += [_moved(one, folder, shown) for one in lints]
        signers, unsigned = await in_thread(self._signers, folder, shown, files)
        backends: dict[int, str] = {}
        if not found:
            for version in await in_thread(_versions_in, folder):
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
        return Inspected(tuple(found), tuple(unsigned), sealed, backends)

    def _formats(self, files: Iterable[FileEntry], shown: Path) -> Iterator[Finding]:
        allowed = self._settings.formats
        for file in files:
            name = file.path.rpartition("/")[2]
            kinds = formats_of(name)
            if hidden(name) or any(kind in allowed for kind in kinds):
                continue
            taken = ", ".join(sorted({end for kind in allowed for end in FORMATS[kind]}))
            if kinds:
                remedy = (
                    f"is of format {' or '.join(kinds)}, which can carry code and is not allowed "
                    "in this repository; export it as ONNX, safetensors or .pt2, or ask an "
                    f"administrator to allow {kinds[0]} (modelyard repo change NAME --add-format "
                    f"{kinds[0]})"
                )
            else:
                remedy = f"is of no format this repository takes; it takes {taken}"
            yield Finding(shown / file.path, 0, 0, "E440", remedy)

    async def _artefact(self, version: ModelVersion) -> tuple[list[Finding], str]:
        try:
            config = await self._checker.complete(version)
        except LoadFailed as error:
            return [Finding(version.path, 0, 0, ARTEFACT_CODE, str(error))], ""
        needed = await in_thread(_code_format, version, config.backend)
        if needed and needed not in self._settings.formats:
            remedy = (
                f"would run code with the backend '{config.backend}', which this repository does "
                f"not allow; ask an administrator to allow the format {needed} (modelyard repo "
                f"change NAME --add-format {needed})"
            )
            return [Finding(version.path, 0, 0, "E440", remedy)], config.backend
        return [], config.backend

    def _signers(
        self, folder: Path, shown: str, files: Sequence[FileEntry]
    ) -> tuple[dict[int, str], list[Finding]]:
        """Who signed each version, and what is wrong with the signatures; blocks."""
        if self._settings.signing == Signing.OFF:
            return {}, []
        trusted = [
            Trusted(f"trusted key {number}", pem.encode())
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


def _versions_in(folder: Path) -> Sequence[ModelVersion]:
    try:
        state = FolderReader().repository(folder.parent).get(folder.name)
        return model_folder(state).versions if state is not None else ()
    except (BadRepository, ConfigError):
        return ()  # lint has told


def _code_format(version: ModelVersion, backend: str) -> str:
    """The format whose permission it takes to run what the backend makes of the version.

    "" for none. The backend goes by the content of its file, whatever the file is called.
    """
    if backend == "python":
        return "python"
    if backend != "pytorch":
        return ""
    return brings_code(artefact_path(version, "model.pt2", "model.pt"))


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
