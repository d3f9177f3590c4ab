"""Make a virtual environment and install wheels into it; runs confined, in a process of its own.

First pip resolves the requirements and the result is written as a lock, each package with its
version and hashes; then the lock is installed, and nothing that is not in it. Where a lock is given
it is installed as it is.
"""

import contextlib
import json
import os
import re
import subprocess
import sys
import sysconfig
import venv
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from backends.environments.build import say
from backends.environments.pip_errors import translated
from backends.environments.sources import TEMPORARY
from backends.environments.store import ENVIRONMENT
from repository.process.parent import die_with

LOCK = "lock.txt"
_MOST_LINES = 2000
_FIXED = (
    *("--only-binary", ":all:", "--no-input", "--disable-pip-version-check", "--no-cache-dir"),
    *("--no-color", "--progress-bar", "off", "--retries", "1", "--timeout", "20"),
    "--no-warn-script-location",
)
_COLLECTING = re.compile(
    r"Collecting ([A-Za-z0-9._-]+)|Processing (?:.*/)?([A-Za-z0-9._]+)-[^/]*\.whl"
)


def platform() -> str:
    """What wheels are chosen for: "Python 3.11 on linux-x86_64"."""
    version = ".".join(map(str, sys.version_info[:2]))
    return f"Python {version} on {sysconfig.get_platform()}"


def main(place: str) -> int:
    """Make `place`/env from `place`/requirements.txt, or from `place`/lock.txt where that is. 1
    with a reason where that fails."""
    folder = Path(place)
    (folder / TEMPORARY).mkdir()
    if find_spec("pip") is None:
        say(error="the server's Python has no pip, which makes environments; install pip there")
        return 1
    say(progress="building environment: making it")
    venv.EnvBuilder(symlinks=True, with_pip=False).create(folder / ENVIRONMENT)
    pip = _Pip(folder)
    return 0 if _locked(folder, pip) and _installed(folder, pip) else 1


class _Pip:
    """The server's pip, run by the environment's Python."""

    def __init__(self, folder: Path) -> None:
        spec = find_spec("pip")
        assert spec is not None
        assert spec.origin is not None
        python = str(folder / ENVIRONMENT / "bin" / "python")
        self._start = [python, os.path.dirname(spec.origin), "install", *_FIXED]

    def run(self, *arguments: str) -> bool:
        """Tells how far it is, or why it failed."""
        lines: list[str] = []
        with subprocess.Popen(
            [*self._start, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            preexec_fn=partial(die_with, os.getpid()),
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                lines.append(line.rstrip())
                del lines[:-_MOST_LINES]
                self.follow(line)
        if process.returncode:
            say(error=translated(lines, platform()))
        return process.returncode == 0

    total = 0
    begun = 0

    def follow(self, line: str) -> None:
        """Tell how far the installation is, once it is known what there is to install."""
        if not self.total:
            return
        if found := _COLLECTING.search(line):
            self.begun = min(self.begun + 1, self.total)
            name = found[1] or found[2]
            say(progress=f"building environment: fetching {self.begun} of {self.total} ({name})")
        elif line.startswith("Installing collected packages"):
            say(progress=f"building environment: installing {self.total} packages")


def _locked(folder: Path, pip: _Pip) -> bool:
    lock = folder / LOCK
    if lock.exists():
        return True
    say(progress="building environment: choosing versions")
    report = folder / "report.json"
    resolve = ["--dry-run", "--ignore-installed", "--report", str(report)]
    if not pip.run(*resolve, "--requirement", str(folder / "requirements.txt")):
        return False
    lines = [_lock_line(one) for one in json.loads(report.read_text())["install"]]
    wanted = (folder / "requirements.txt").read_text().splitlines()
    if not lines and any(";" not in one for one in wanted):
        say(error="pip chose no package at all, and some are required")
        return False
    lock.write_text("".join(f"{line}\n" for line in sorted(lines)))
    return True


def _lock_line(installed: dict[str, dict[str, object]]) -> str:
    metadata: dict[str, object] = installed["metadata"]
    archive = installed["download_info"].get("archive_info", {})
    hashes = archive.get("hashes", {}) if isinstance(archive, dict) else {}
    return f"{metadata['name']}=={metadata['version']} --hash=sha256:{hashes['sha256']}"


def _installed(folder: Path, pip: _Pip) -> bool:
    pip.total = len((folder / LOCK).read_text().splitlines())
    if not pip.total:
        return True
    # pip sees the server's packages too, since it is the server's, and would install none of them
    arguments = ["--ignore-installed", "--no-deps", "--require-hashes"]
    done = pip.run(*arguments, "--requirement", str(folder / LOCK))
    with contextlib.suppress(FileNotFoundError):
        (folder / "report.json").unlink()
    return done
