"""Bare repositories below one folder: made, listed, configured, removed, and their commits pinned.

The store's folder has `git/<name>.git` per repository and `hooks/`, which all of them share.
"""

import os
import secrets
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from repository.git.errors import BadGitName, RepositoryExists, UnknownRepository
from repository.git.hooks import hook
from repository.git.names import is_oid, key_problem, repository_problem
from repository.git.process import run
from repository.git.quarantine import PREFIX

BRANCH = "main"
"""The branch that HEAD names."""

PINS = "refs/internal/deployed/"
"""Refs that keep deployed commits from gc; no client sees or moves them."""

_COLLECT_SECS, _COLLECT_NICE = 1800.0, 15


@dataclass(frozen=True, slots=True)
class ReceiveLimits:
    """What git itself refuses while it receives; rules for files come later (`rules.Budgets`)."""

    push_bytes: int = 512 * 2**20


@dataclass(frozen=True, slots=True)
class BareRepository:
    """One bare repository."""

    name: str
    path: Path


async def create(root: Path, name: str, limits: ReceiveLimits) -> BareRepository:
    """A new, empty repository, whole or not at all.

    Raises `BadGitName`, `RepositoryExists`, `GitFailed`.
    """
    made = _bare(root, name)
    unfinished = _folder(root) / f".new-{secrets.token_hex(8)}"
    if made.path.exists():
        raise RepositoryExists(f"there is a repository '{name}' already; choose another name")
    hook.install(hooks_folder(root))
    unfinished.mkdir(parents=True)
    try:
        init = ("init", "--quiet", "--bare", "--template=", f"--initial-branch={BRANCH}")
        await run(unfinished, *init)
        configure(root, BareRepository(name, unfinished), limits)
        os.rename(unfinished, made.path)
    except OSError as error:
        if not made.path.exists():
            raise
        raise RepositoryExists(f"there is a repository '{name}' already") from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return made


def names(root: Path) -> tuple[str, ...]:
    """The repositories there are, sorted."""
    if not _folder(root).is_dir():
        return ()
    found = (path.stem for path in _folder(root).iterdir() if path.suffix == ".git")
    return tuple(sorted(name for name in found if not repository_problem(name)))


def find(root: Path, name: str) -> BareRepository:
    """The repository of that name; raises `BadGitName`, `UnknownRepository`."""
    bare = _bare(root, name)
    if not bare.path.is_dir():
        there = ", ".join(names(root)[:20]) or "none"
        raise UnknownRepository(f"there is no repository '{name}'; there are: {there}")
    return bare


def configure(root: Path, bare: BareRepository, limits: ReceiveLimits) -> None:
    """Write the repository's whole config; the same again changes nothing."""
    config = _config(hooks_folder(root), limits)
    path = bare.path / "config"
    if path.exists() and path.read_text() == config:
        return
    unfinished = path.with_name(f".config-{secrets.token_hex(8)}")
    unfinished.write_text(config)
    os.replace(unfinished, path)


def start(root: Path, limits: ReceiveLimits) -> tuple[BareRepository, ...]:
    """Every repository, configured anew and rid of what a crash left.

    Only while no git runs below `root`: locks and quarantines are taken for abandoned.
    """
    hook.install(hooks_folder(root))
    _folder(root).mkdir(parents=True, exist_ok=True)
    for path in _folder(root).glob(".*"):
        shutil.rmtree(path, ignore_errors=True)
    found = tuple(_bare(root, name) for name in names(root))
    for bare in found:
        configure(root, bare, limits)
        sweep(bare)
        (bare.path / "gc.pid").unlink(missing_ok=True)
    return found


def sweep(bare: BareRepository, older_s: float = 0.0) -> None:
    """Remove quarantines, locks and half packs that a git killed half-way has left.

    While git may be running, only those not touched for `older_s`, longer than it takes for a push.
    """
    for path in (bare.path / "objects").glob(f"{PREFIX}*"):
        if _untouched_s(path) >= older_s:
            shutil.rmtree(path, ignore_errors=True)
    packs = bare.path / "objects/pack"
    halves = (*packs.glob("tmp_*"), *packs.glob(".tmp-*"))
    for path in (*halves, *bare.path.glob("*.lock"), *(bare.path / "refs").rglob("*.lock")):
        if _untouched_s(path) >= older_s:
            path.unlink(missing_ok=True)


def sweep_all(root: Path, older_s: float) -> None:
    """`sweep` every repository below `root`."""
    for name in names(root):
        sweep(_bare(root, name), older_s)


def remove(root: Path, name: str) -> None:
    """Take the repository away, at once to all who look. Raises `BadGitName`,
    `UnknownRepository`."""
    bare = find(root, name)
    removed = _folder(root) / f".removed-{secrets.token_hex(8)}"
    os.rename(bare.path, removed)
    shutil.rmtree(removed)


async def pin(bare: BareRepository, commit: str, key: str) -> None:
    """Keep a commit from gc until `unpin(key)`. Raises `BadGitName`, `GitFailed` if there is
    none."""
    if not is_oid(commit):
        raise BadGitName(f"'{commit}' is not a whole commit id of 40 or 64 hex digits")
    await run(bare.path, "update-ref", "--end-of-options", _pin_ref(key), commit)


async def unpin(bare: BareRepository, key: str) -> None:
    """Let a pinned commit go; no-op when it is not pinned."""
    await run(bare.path, "update-ref", "-d", "--end-of-options", _pin_ref(key))


async def pins(bare: BareRepository) -> dict[str, str]:
    """Per key the commit that is pinned under it."""
    form = "--format=%(objectname) %(refname)"
    output = await run(bare.path, "for-each-ref", form, "--end-of-options", PINS)
    lines = (line.split(" ", 1) for line in output.stdout.decode().splitlines())
    return {ref.removeprefix(PINS): oid for oid, ref in lines}


def packs(bare: BareRepository) -> int:
    """How many packs the repository's objects lie in: each push leaves one."""
    return sum(1 for _ in (bare.path / "objects/pack").glob("*.pack"))


def is_receiving(bare: BareRepository) -> bool:
    """Whether a push is under way, whichever server has taken it, or was cut off a while ago."""
    return any((bare.path / "objects").glob(f"{PREFIX}*"))


async def collect(bare: BareRepository) -> None:
    """git's garbage collection; slow, safe beside pushes, and it keeps whatever is pinned.

    It gives way to everything else that wants a core. Raises `GitFailed`, also where another
    server is at it.
    """
    await run(bare.path, "gc", "--quiet", timeout_s=_COLLECT_SECS, nice=_COLLECT_NICE)


def hooks_folder(root: Path) -> Path:
    """Where the hooks of all repositories below `root` lie."""
    return root / "hooks"


def _folder(root: Path) -> Path:
    return Path(os.path.abspath(root)) / "git"


def _bare(root: Path, name: str) -> BareRepository:
    if problem := repository_problem(name):
        raise BadGitName(f"'{name}' cannot name a repository: {problem}")
    return BareRepository(name, _folder(root) / f"{name}.git")


def _untouched_s(path: Path) -> float:
    """Since when nothing was put there; -1.0 when it has gone meanwhile."""
    try:
        return max(0.0, time.time() - path.stat().st_mtime)
    except FileNotFoundError:
        return -1.0


def _pin_ref(key: str) -> str:
    if problem := key_problem(key):
        raise BadGitName(f"'{key}' cannot be the key of a pin: {problem}")
    return PINS + key


def _config(hooks: Path, limits: ReceiveLimits) -> str:
    lines = []
    for section, settings in _settings(hooks, limits).items():
        lines.append(f"[{section}]")
        lines += [f'\t{name} = "{_quoted(value)}"' for name, value in settings.items()]
    return "\n".join(lines) + "\n"


def _quoted(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _settings(hooks: Path, limits: ReceiveLimits) -> dict[str, dict[str, str]]:
    return {
        "core": {
            "repositoryFormatVersion": "0",
            "bare": "true",
            "fileMode": "true",
            "hooksPath": os.path.abspath(hooks),
            "logAllRefUpdates": "true",
            # So that an answered push survives a power cut: git syncs packs unasked, refs not.
            "fsync": "reference",
            # Files from here on are streamed, and never kept as deltas.
            "bigFileThreshold": "8m",
            "deltaBaseCacheLimit": "64m",
        },
        "transfer": {"fsckObjects": "true", "hideRefs": "refs/internal"},
        "receive": {
            "fsckObjects": "true",
            "maxInputSize": str(limits.push_bytes),
            # Every push stays one pack: nothing it inflates to reaches the disk.
            "unpackLimit": "1",
            "autogc": "false",
            "advertisePushOptions": "true",
            # Which branches are protected is the hook's to say, not every branch's fate.
            "denyNonFastForwards": "false",
            "denyDeletes": "false",
            "denyDeleteCurrent": "ignore",
        },
        "uploadpack": {"allowFilter": "true", "allowAnySHA1InWant": "false"},
        "http": {"getanyfile": "false"},
        # What nothing refers to any more goes into a pack as well, not into a file each.
        "gc": {"auto": "0", "cruftPacks": "true"},
        "pack": {"threads": "1", "windowMemory": "64m", "deltaCacheSize": "32m"},
    }
