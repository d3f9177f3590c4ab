"""Decide what to load, resize and unload for one model. Pure: plain data in, one `ModelChange` out.

`server.fleet.fleet` asks `next_change` again after every change until it answers None.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from repository.model import ModelFolder, ModelVersion
from repository.policy import selected_versions


class BuildDigests(NamedTuple):
    """The digests one version was built, or tried, from (see `repository.model`)."""

    core: str
    files: str
    instances: str

    def same_model(self, other: "BuildDigests") -> bool:
        """Whether only the number or the place of instances may differ."""
        return self.core == other.core and self.files == other.files


@dataclass(frozen=True, slots=True)
class ObservedVersions:
    """What the fleet has of one model, by version.

    `serving`: answers requests. `failed`: a load or resize that failed, and is not tried again
    from the same digests. `dropped`: built well, but thrown away because another version of the
    same reload failed.
    """

    serving: Mapping[int, BuildDigests] = field(default_factory=dict)
    failed: Mapping[int, BuildDigests] = field(default_factory=dict)
    dropped: Mapping[int, BuildDigests] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ModelChange:
    """What to do to one model, in this order: load beside the old, swap, resize, unload.

    `atomic`: a version that serves is being rebuilt, so one failure drops all that was built.
    When any load fails, `unload` is not carried out: what it would remove keeps serving.
    """

    load: tuple[ModelVersion, ...] = ()
    atomic: bool = False
    resize: tuple[ModelVersion, ...] = ()
    unload: tuple[int, ...] = ()


def next_change(folder: ModelFolder | None, held: ObservedVersions) -> ModelChange | None:
    """The next step from `held` towards `folder` (None: the model is not wanted), or None."""
    if folder is None:
        return ModelChange(unload=tuple(sorted(held.serving))) if held.serving else None
    target = target_versions(folder)
    load = _to_load(folder, target, held)
    change = ModelChange(
        load=load,
        atomic=any(version.number in held.serving for version in load),
        resize=_to_resize(folder, target, held),
        unload=_to_unload(folder, target, held, bool(load)),
    )
    return change if change.load or change.resize or change.unload else None


def target_versions(folder: ModelFolder) -> dict[int, ModelVersion]:
    """The versions the model's policy selects, and those referred to, by number, ascending."""
    target = {pin.version.number: pin.version for pin in folder.pins}
    target.update(selected_versions(folder))
    return dict(sorted(target.items()))


def basis_of(folder: ModelFolder, version: ModelVersion) -> BuildDigests:
    for pin in folder.pins:
        if pin.version is version:
            return BuildDigests(pin.core_digest, version.digest, pin.instances_digest)
    return BuildDigests(folder.core_digest, version.digest, folder.instances_digest)


def _to_load(
    folder: ModelFolder, target: Mapping[int, ModelVersion], held: ObservedVersions
) -> tuple[ModelVersion, ...]:
    """Versions not served from these files, without those that failed from them.

    What was dropped because of a failure waits until that failure is mended or gone.
    """
    stuck = _stuck(folder, target, held)
    load = []
    for number, version in target.items():
        basis = basis_of(folder, version)
        serving = held.serving.get(number)
        if serving is not None and serving.same_model(basis):
            continue
        if number in stuck or (stuck and held.dropped.get(number) == basis):
            continue
        load.append(version)
    return tuple(load)


def _stuck(
    folder: ModelFolder, target: Mapping[int, ModelVersion], held: ObservedVersions
) -> set[int]:
    """Wanted versions that cannot be served from these files: trying again would only fail again.

    A failed resize does not count: what it failed to resize does serve.
    """
    stuck = set()
    for number, version in target.items():
        basis, serving = basis_of(folder, version), held.serving.get(number)
        if held.failed.get(number) == basis and not (serving and serving.same_model(basis)):
            stuck.add(number)
    return stuck


def _to_resize(
    folder: ModelFolder, target: Mapping[int, ModelVersion], held: ObservedVersions
) -> tuple[ModelVersion, ...]:
    resize = []
    for number, version in target.items():
        serving = held.serving.get(number)
        basis = basis_of(folder, version)
        if serving is None or serving == basis or held.failed.get(number) == basis:
            continue
        if serving.same_model(basis):
            resize.append(version)
    return tuple(resize)


def _to_unload(
    folder: ModelFolder, target: Mapping[int, ModelVersion], held: ObservedVersions, loading: bool
) -> tuple[int, ...]:
    """Serving versions to let go.

    While a wanted version is stuck, or the policy selects nothing, what is still on disk stands
    in for it; a version deleted from disk goes, unless a stuck one would be all that is left.
    """
    surplus = sorted(held.serving.keys() - target.keys())
    if target and not _stuck(folder, target, held):
        return tuple(surplus)
    on_disk = {version.number for version in folder.versions}
    on_disk |= {pin.version.number for pin in folder.pins}
    gone = [number for number in surplus if number not in on_disk]
    only_stuck_left = bool(target) and not loading and len(gone) == len(held.serving)
    return () if only_stuck_left else tuple(gone)
