"""The mark of a job: what it proves, and where it cannot be set."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jobs.process.mark import mark_of
from jobs.process.membership import JobMembers, running
from jobs.process.program import ROOT

UNTIL_TOLD = "import sys; print('ready', flush=True); sys.stdin.read()"


@contextmanager
def leader(before: str = "") -> Iterator[int]:
    """The first process of a job, in a session of its own, once it has done `before`."""
    with subprocess.Popen(
        [sys.executable, "-c", f"{before}\n{UNTIL_TOLD}"], cwd=ROOT, start_new_session=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
            yield process.pid
        finally:
            process.communicate(timeout=60)


def test_a_process_in_another_jobs_session_is_not_a_jobs_own_whatever_its_mark(
    tmp_path: Path,
) -> None:
    with leader() as first:
        claims = f"from jobs.process.mark import set_mark; set_mark({first})"
        with leader(claims) as second:
            victim, liar = (
                JobMembers(pid, str(tmp_path / str(pid)).encode(), strays=False)
                for pid in (first, second)
            )
            assert mark_of(second) == first
            with running(victim):
                assert victim._owns(second), "of no running job"
                with running(liar):
                    assert not victim._owns(second)
                    assert liar._owns(second)


def test_a_job_runs_without_a_mark_where_the_limit_is_lower_already() -> None:
    code = (
        "import os, resource\nfrom jobs.process.mark import mark_of, set_mark\n"
        "resource.setrlimit(10, (1, 1))\n"
        "if os.geteuid() == 0: os.setuid(65534)\n"  # root may raise it
        "set_mark(os.getpid())\nprint(mark_of(os.getpid()))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert (ran.stdout, ran.stderr) == ("1\n", "")
