"""Steps of a build: what bounds them, and that none is left behind."""

import os
import re
import select
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from backends.environments.build import BuildFailed, BuildStep, run_step
from backends.environments.step_bounds import MEMORY_BYTES
from backends.environments.store import ENVIRONMENT
from backends.environments.unpack import root_of

UNPACK = """
import sys
from pathlib import Path
from backends.environments.build import BuildStep, run_step
fifo, folder = sys.argv[1:]
arguments = (fifo, folder + "/env", "1000000")
step = BuildStep(
    "backends.environments.unpack", arguments, Path(folder), None, {}, float("inf"), 1 << 30
)
run_step(step, print)
"""
PIP = """
import sys
from pathlib import Path
from backends.environments.install import _Pip
fifo, folder = sys.argv[1:]
_Pip(Path(folder)).run("--no-index", "--requirement", fifo)
"""
END_SECS = 30


def unpacked(archive: Path, folder: Path) -> None:
    arguments = (str(archive), str(folder / ENVIRONMENT), str(1 << 40))
    until = float("inf")
    step = BuildStep("backends.environments.unpack", arguments, folder, None, {}, until, 1 << 30)
    run_step(step, lambda _: None)


@pytest.mark.slow
def test_an_archive_whose_headers_take_more_than_a_step_may_is_refused(tmp_path: Path) -> None:
    name = tarfile.TarInfo("././@LongLink")
    name.type, name.size = tarfile.GNUTYPE_LONGNAME, 2 * MEMORY_BYTES
    archive = tmp_path / "e.tar"
    archive.write_bytes(name.tobuf(tarfile.GNU_FORMAT))
    os.truncate(archive, 2 * MEMORY_BYTES + 10_240)  # a hole, which takes no disk
    with pytest.raises(BuildFailed, match=f"takes more than {MEMORY_BYTES} bytes of memory"):
        unpacked(archive, tmp_path)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("code", [UNPACK, PIP], ids=["unpack", "pip"])
def test_a_step_ends_with_the_process_that_started_it(tmp_path: Path, code: str) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    (tmp_path / ENVIRONMENT / "bin").mkdir(parents=True)
    (tmp_path / ENVIRONMENT / "bin" / "python").symlink_to(sys.executable)
    if code is UNPACK:
        (tmp_path / ENVIRONMENT).rename(tmp_path / "other")
    with subprocess.Popen([sys.executable, "-c", code, fifo, tmp_path]) as parent:
        try:
            writes = os.open(fifo, os.O_WRONLY)  # once the step reads
        finally:
            parent.send_signal(signal.SIGKILL)
    try:
        poll = select.poll()
        poll.register(writes, select.POLLERR)
        assert poll.poll(END_SECS * 1000), "the step still reads"
    finally:
        os.close(writes)


def test_a_step_has_little_memory_and_is_the_first_to_go_when_that_runs_out(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with subprocess.Popen([sys.executable, "-c", UNPACK, fifo, tmp_path]) as parent:
        writes = os.open(fifo, os.O_WRONLY)
        try:
            tasks = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
            scores = [Path(f"/proc/{one}/oom_score_adj").read_text() for one in tasks]
            limits = [Path(f"/proc/{one}/limits").read_text() for one in tasks]
        finally:
            os.close(writes)
    assert scores == ["1000\n"]
    assert re.search(rf"Max data size +{MEMORY_BYTES} +{MEMORY_BYTES}", limits[0])


def test_a_link_in_an_archive_is_no_environment(tmp_path: Path) -> None:
    (tmp_path / "elsewhere" / "bin").mkdir(parents=True)
    (tmp_path / "elsewhere" / "bin" / "python").touch()
    target = tmp_path / "target"
    target.mkdir()
    (target / "e").symlink_to(tmp_path / "elsewhere")
    assert root_of(target) is None
    (target / "own" / "bin").mkdir(parents=True)
    (target / "own" / "bin" / "python").symlink_to("/usr/bin/python3")
    assert root_of(target) == target / "own"
