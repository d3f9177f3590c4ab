"""A clone of this repository for the README's blocks: its files as git has or would add them, and a
`.venv` that is this one, set up.
"""

import shutil
import subprocess
import sys
from pathlib import Path

from support.doc_pages import ROOT

COLLECTED_ONLY = {"PYTEST_ADDOPTS": "--collect-only -q --ignore-glob=tests/[!d]*"}
"""`./dev test` within a test finds the tests of tests/docs and runs none."""


def clone_into(folder: Path) -> dict[str, str]:
    """Fill an empty folder; returns what the environment there needs."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    _set_up(folder)
    return COLLECTED_ONLY


def _set_up(folder: Path) -> None:
    """`./dev` finds everything installed: nothing is fetched, and the real .venv is not touched."""
    venv = folder / ".venv"
    venv.mkdir()
    for entry in Path(sys.prefix).iterdir():
        if not entry.name.startswith("stamp-"):
            (venv / entry.name).symlink_to(entry)
    has_gpu = subprocess.run("nvidia-smi -L", shell=True, capture_output=True).returncode == 0
    sums = "cat dev pyproject.toml constraints.txt | cksum"
    summed = subprocess.run(
        sums, shell=True, cwd=folder, capture_output=True, text=True, check=True
    )
    for part in ("serving", "tools"):
        stamp = f"{'gpu' if has_gpu else 'cpu'} {summed.stdout}"
        (venv / f"stamp-{part}").write_text(stamp)
