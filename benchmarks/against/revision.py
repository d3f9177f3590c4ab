"""Another revision of this repository, ready to be started: a worktree with its own environment."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SETUP_S = 1800


def checked_out(revision: str, cache: Path, root: Path = ROOT) -> Path:
    """A worktree of `revision` of the repository `root`, set up and kept for the next time.

    Raises CalledProcessError where there is no such revision, or it cannot be set up.
    """
    name = _git(root, "rev-parse", "--verify", "--short=12", f"{revision}^{{commit}}")
    tree = cache / "against" / name
    if not (tree / "dev").exists():
        _git(root, "worktree", "prune")
        _git(root, "worktree", "add", "--detach", str(tree), name)
    with (cache / "against" / f"{name}.log").open("wb") as log:
        subprocess.run(
            ["./dev", "setup"], cwd=tree, stdout=log, stderr=log, timeout=SETUP_S, check=True
        )
    return tree


def _git(root: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", *words], cwd=root, stdout=subprocess.PIPE, text=True, timeout=SETUP_S, check=True
    )
    return done.stdout.strip()
