"""One Snapshot from two sources: the model repository folders, and the desired state.

Pure. `server.desired.repository` feeds it; the result goes to the fleet.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from types import MappingProxyType

from control.desired import DesiredModel, DesiredState, Pin
from repository.model import ModelFolder, ModelVersion, PinnedVersion, Snapshot
from repository.snapshots.sealed_models import Sealed


def merge(folders: Snapshot, desired: DesiredState, sealed: Callable[[str], Sealed]) -> Snapshot:
    """`folders` with the pushed models and the pins of `desired`; `sealed` reads a digest's
    snapshot.

    A name that stands in a folder and is pushed too is a problem, as it is for two folders.
    """
    models, problems = dict(folders.models), dict(folders.problems)
    delivered = set()
    for model in desired.models:
        if not model.snapshot:
            folder = models.get(model.name)
            if folder is None and model.name not in problems:
                folder = _undeployed(model, sealed)
                delivered |= {model.name} if folder is not None else set()
            if folder is not None:
                models[model.name] = _pinned(folder, model.pins, sealed)
            continue
        delivered.add(model.name)
        found = _delivered(model, folders, sealed)
        models.pop(model.name, None)
        if isinstance(found, str):
            problems[model.name] = found
        else:
            models[model.name] = _pinned(found, model.pins, _permitted(model, sealed))
    return Snapshot(
        folders.revision,
        MappingProxyType(models),
        MappingProxyType(problems),
        frozenset(delivered),
        desired.revision,
        folders.strays,
    )


def _undeployed(model: DesiredModel, sealed: Callable[[str], Sealed]) -> ModelFolder | None:
    """A model that nobody deploys any more, for the versions of it that are still referred to."""
    for pin in model.pins:
        folder = _elsewhere(pin, sealed)
        if folder is not None and folder.name == model.name:
            return replace(folder, only_pinned=True)
    return None


def _delivered(model: DesiredModel, folders: Snapshot, sealed: Callable[[str], Sealed]) -> Sealed:
    if model.name in folders.models or model.name in folders.problems:
        return (
            f"model '{model.name}' is pushed to the git repository '{model.repository}' and also "
            "lies in a model repository folder; keep one of them"
        )
    found = _permitted(model, sealed)(model.snapshot)
    if isinstance(found, str) or found.name == model.name:
        return found
    return f"snapshot {model.snapshot} is of '{found.name}', not of '{model.name}'. This is a bug."


def _permitted(model: DesiredModel, sealed: Callable[[str], Sealed]) -> Callable[[str], Sealed]:
    """Versions of older snapshots have what the repository allows today."""

    def look(digest: str) -> Sealed:
        found = sealed(digest)
        return found if isinstance(found, str) or not model.network else _with_network(found)

    return look


def _with_network(folder: ModelFolder) -> ModelFolder:
    """With the permission; another core digest, so that a change of it loads the model anew."""
    versions = tuple(replace(one, network_allowed=True) for one in folder.versions)
    return replace(folder, versions=versions, core_digest=folder.core_digest + " network")


def _pinned(
    folder: ModelFolder, pins: Iterable[Pin], sealed: Callable[[str], Sealed]
) -> ModelFolder:
    """`folder` with what is referred to; a pin whose files are gone pins nothing."""
    by: dict[int, list[str]] = {}
    found: dict[int, PinnedVersion] = {}
    own = {version.number: version for version in folder.versions}
    for pin in pins:
        by.setdefault(pin.version, []).append(pin.by)
        source = folder if pin.version in own else _elsewhere(pin, sealed)
        version = _version(source, pin.version)
        if source is not None and version is not None:
            found[pin.version] = PinnedVersion(
                version, source.core_digest, source.instances_digest, ", ".join(by[pin.version])
            )
    return replace(folder, pins=tuple(found[number] for number in sorted(found)))


def _elsewhere(pin: Pin, sealed: Callable[[str], Sealed]) -> ModelFolder | None:
    found = sealed(pin.snapshot) if pin.snapshot else None
    return found if isinstance(found, ModelFolder) else None


def _version(folder: ModelFolder | None, number: int) -> ModelVersion | None:
    versions: Iterable[ModelVersion] = folder.versions if folder else ()
    return next((version for version in versions if version.number == number), None)
