"""Make one environment from a list of requirements, in a place that a store gives."""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from backends.environments.build import BuildStep, run_step
from backends.environments.install import LOCK
from backends.environments.sources import TEMPORARY, PackageSources
from backends.environments.store import EnvironmentStore
from repository import tree
from repository.sandbox.policy import Sandbox

Tell = Callable[[str], None]
"""Takes what a load is doing just now, for people; from any thread."""

SandboxOf = Callable[[Path, tuple[str, ...], bool, bool], Sandbox | None]
"""What confines a step that writes below a folder and reads some paths besides; whether it starts
programs, and whether it may use the network. None for nothing."""

LOAD_SETTING = "--model-load-timeout-secs"


def never() -> bool:
    """Nobody stops it."""
    return False


class PackageBuild(NamedTuple):
    """What is to be installed and how. `digest`: under which versions that were chosen are kept.
    `until`: of `time.monotonic`; `setting`: what sets it. `stopped`: whether it is to end at once.
    """

    store: EnvironmentStore
    sources: PackageSources
    sandbox_of: SandboxOf
    requirements: tuple[str, ...]
    digest: str
    until: float
    setting: str = LOAD_SETTING
    stopped: Callable[[], bool] = never


def build_packages(build: PackageBuild, place: Path, tell: Tell) -> None:
    """Install it below `place`; versions that were chosen before are chosen again. Raises
    BuildFailed, OSError."""
    tell(f"building environment for {len(build.requirements)} requirements")
    store, sources = build.store, build.sources
    kept = store.kept_versions(build.digest)
    (place / "requirements.txt").write_text("".join(f"{one}\n" for one in build.requirements))
    if kept:
        (place / LOCK).write_bytes(kept)
    step = BuildStep(
        "backends.environments.install",
        (str(place),),
        place,
        build.sandbox_of(place, sources.readable, True, sources.uses_network),
        sources.environment(os.environ, place),
        build.until,
        store.most_bytes,
        build.setting,
        build.stopped,
    )
    run_step(step, tell)
    with suppress(OSError):
        tree.remove(place / TEMPORARY)
    lock = (place / LOCK).read_bytes()
    if lock and not kept:
        store.keep_versions(build.digest, lock)
