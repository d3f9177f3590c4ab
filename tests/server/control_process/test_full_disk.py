"""The disk of the state folder is full: clear refusals, no traceback, nothing acknowledged lost."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from support.yard import Yard, write_identity, yard
from support.yard_load import check_load, inferring

pytestmark = pytest.mark.slow


@contextmanager
def small_disk(folder: Path, mib: int) -> Iterator[None]:
    """`folder` is a filesystem of its own, with so much room."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small filesystem to fill")
    folder.mkdir(mode=0o700)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={mib}m,mode=0700", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no filesystem can be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Leave not a byte of room."""
    path = folder / "filler"
    with suppress(OSError), path.open("wb", buffering=0) as file:
        for size in (2**20, 2**12, 1):
            with suppress(OSError):
                while file.write(b"\0" * size):
                    continue
    return path


def change(y: Yard, number: int) -> int:
    return y.api("POST", "/users", {"name": f"user{number}", "role": "viewer"})[0]


def test_on_a_full_disk_everything_is_refused_with_the_reason_and_goes_on_later(
    tmp_path: Path,
) -> None:
    target = tmp_path / "all.tar"
    with (
        small_disk(tmp_path / "state", 48),
        yard(tmp_path, log_file=str(tmp_path / "state" / "server.log")) as y,
    ):
        work = y.repository("vision")
        write_identity(work, "m", 1)
        y.commit(work, "version 1")
        y.push(work)
        y.wait_versions("m", 1)
        filler = fill(y.state)
        with inferring(y, "m", clients=2) as load:
            backup = y.cli("backup", str(target), ok=False)
            accepted = []
            for number in range(500):
                if (status := change(y, number)) != 201:
                    break
                accepted.append(f"user{number}")
            refused = y.api("POST", "/users", {"name": "eve", "role": "viewer"})[1]
            write_identity(work, "m", 1, 2)
            y.commit(work, "version 2")
            pushed = y.push(work, ok=False)
        check_load(load)
        filler.unlink()
        y.push(work)
        y.wait_versions("m", 2)
        y.cli("backup", str(target))
        y.again()
        users = {one["name"] for one in y.api("GET", "/users?limit=500")[1]["items"]}
        said = y.server.log()

    assert "no space left on the server's disk" in backup, backup
    assert status == 507, status
    assert refused["error"]["code"] == "disk_full", refused
    assert any(words in pushed for words in ("full", "no room", "No space")), pushed
    assert users >= set(accepted)
    assert "Traceback" not in said
    assert "This is a bug" not in said


def test_a_log_file_on_a_full_disk_sends_its_lines_to_stderr_without_tracebacks(
    tmp_path: Path,
) -> None:
    with small_disk(tmp_path / "logs", 1):
        filler = fill(tmp_path / "logs")
        with yard(tmp_path, log_file=str(tmp_path / "logs" / "server.log")) as y:
            write_identity(tmp_path, "m", 1)
            y.wait_versions("m", 1)
            said = y.server.log()
            filler.unlink()
            write_identity(tmp_path, "n", 1)
            y.wait_versions("n", 1)
            later = (tmp_path / "logs" / "server.log").read_text()

    assert "cannot be written (No space left on device)" in said
    assert "m 1: READY" in said
    assert "Traceback" not in said
    assert "n 1: READY" in later
