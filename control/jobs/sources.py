"""The version that a job works on: found among what is deployed and in model repositories."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.orm import Session

from control import loads
from control.deployments import repositories
from control.deployments.deployment import check_model_name, owner_of
from control.errors import Conflict, Invalid, NotAllowed, NotFound
from control.jobs.policy.results import SourceHome, default_result, makes_version
from control.jobs.spec import JobSpec
from control.jobs.views import SourceFolder
from control.tables import Model, SnapshotRow, Version
from repository.snapshots.digest import check_model
from repository.snapshots.errors import BadEntry

READY, CODE_FORMAT = "READY", "python"
_SHOWN = 20


@dataclass(frozen=True, slots=True)
class FoundSource:
    """A version, and where it comes from. `trusted`: who published it may have code of it run."""

    folder: SourceFolder
    home: SourceHome
    trusted: bool


def find_source(session: Session, model: str, version: int, folders: Sequence[Path]) -> FoundSource:
    """Version `version` of `model`, 0 for the highest that is ready. `folders`: the model
    repositories of this server; looks at their names alone.

    Raises Invalid, NotFound naming the versions there are, Conflict where none is ready.
    """
    _check_name(model, "model")
    row = session.get(Model, model)
    if row is not None and row.snapshot_digest is not None:
        return _in_store(session, row, row.snapshot_digest, version)
    for folder in folders:
        if (folder / model).is_dir():
            return _in_folder(session, folder / model, version)
    raise NotFound(f"there is no model '{model:.128}'; modelyard model list shows those there are")


def check_trust(spec: JobSpec, source: FoundSource) -> None:
    """Raises NotAllowed where the job would run code of somebody who may not have it run."""
    needs_trust = spec.NEEDS_TRUST or getattr(spec, "trusted", False)
    if needs_trust and not source.trusted:
        raise NotAllowed(
            f"such a job runs code that came with '{spec.model}'; an administrator allows "
            f"that by adding the format '{CODE_FORMAT}' to its git repository; code of imports is "
            "never run"
        )


def result_model(
    session: Session, spec: JobSpec, source: FoundSource, folders: Sequence[Path]
) -> str:
    """The model of the store that gets the result, "" for a job that makes no version.

    Raises Invalid, and Conflict for a model that the server does not write to.
    """
    name = spec.result_model or default_result(spec, source.home)
    if not makes_version(spec):
        if spec.result_model:
            raise Invalid("a profile makes no version; leave result_model out", "result_model")
        return ""
    check_result(session, name, folders)
    return name


def check_result(session: Session, name: str, folders: Sequence[Path]) -> None:
    """Raises Invalid for what cannot name the model of a result, and Conflict for a model that the
    server does not write to."""
    _check_name(name, "result_model")
    if owner := owner_of(session, name):
        raise Conflict(
            f"the model '{name}' belongs to the repository '{owner}', which only pushes change; "
            "give another result_model"
        )
    if any((folder / name).is_dir() for folder in folders):
        raise Conflict(
            f"the model '{name}' lies in a model repository folder, which the server does not "
            "write to; give another result_model"
        )


def _check_name(model: str, field: str) -> None:
    try:
        check_model_name(model)
        check_model(model)
    except (BadEntry, Invalid) as error:
        raise Invalid(str(error), field) from error


def _in_store(session: Session, row: Model, deployed: str, version: int) -> FoundSource:
    there = session.get_one(SnapshotRow, deployed).versions
    number = version or _ready(session, row.name, map(int, there))
    one = session.get(Version, (row.name, number))
    if one is None:
        known = select(Version.number).where(Version.model == row.name).order_by(Version.number)
        raise _no_version(row.name, number, session.scalars(known).all())
    snapshot = deployed if str(number) in there else one.snapshot_digest
    folder = SourceFolder(row.name, number, snapshot=snapshot, digest=one.digest)
    owner = owner_of(session, row.name)
    if owner is None:
        return FoundSource(folder, SourceHome.STORE, trusted=False)
    formats = repositories.get_repository(session, owner).settings.formats
    return FoundSource(folder, SourceHome.GIT, trusted=CODE_FORMAT in formats)


def _in_folder(session: Session, folder: Path, version: int) -> FoundSource:
    """What lies in a folder of the operator's is the operator's own."""
    names = [path.name for path in folder.iterdir() if path.is_dir()]
    there = sorted(int(name) for name in names if name.isascii() and name.isdecimal())
    number = version or _ready(session, folder.name, there)
    if number not in there:
        raise _no_version(folder.name, number, there)
    source = SourceFolder(folder.name, number, folder=str(folder.absolute()))
    return FoundSource(source, SourceHome.FOLDER, trusted=True)


def _ready(session: Session, model: str, there: "Sequence[int] | map[int]") -> int:
    numbers = set(there)
    states = loads.states(session, [model])
    ready = {one.version for one in states if one.state == READY} & numbers
    if not ready:
        raise Conflict(f"no version of '{model}' is ready; name the version to work on")
    return max(ready)


def _no_version(model: str, number: int, there: Sequence[int]) -> NotFound:
    known = ", ".join(map(str, there[-_SHOWN:])) or "none"
    return NotFound(f"the model '{model}' has no version {number}; it has {known}")
