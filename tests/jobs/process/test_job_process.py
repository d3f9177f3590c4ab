"""A job's process, real: contained whatever it does, explained at its end, and gone afterwards."""

import json
import os
import secrets
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from jobs.process.ending import JobEnd
from jobs.process.job_process import JobProcess
from jobs.process.limits import ProcessLimits
from jobs.process.program import LEADER, ROOT, JobProgram
from repository.files.owner import alive, pid_of
from repository.sandbox.enter import kernel
from repository.sandbox.policy import Sandbox
from repository.tree import remove

LIMITS = ProcessLimits(
    memory_bytes=256 << 20,
    cpu_secs=60,
    wall_secs=60,
    disk_bytes=64 << 20,
    output_bytes=64 << 20,
    grace_secs=0.5,
)
WAIT_S = 60.0


class Scene(NamedTuple):
    """A job's folders."""

    folder: Path
    mark: str

    def process(
        self, do: str, limits: ProcessLimits = LIMITS, sandbox: Sandbox | None = None, **more: str
    ) -> JobProcess:
        output, scratch = self.folder / "output", self.folder / "scratch"
        output.mkdir()
        scratch.mkdir()
        task = self.folder / "task.json"
        folders = {"output": str(output), "scratch": str(scratch)}
        task.write_text(json.dumps({"do": do, "mark": self.mark, **folders, **more}))
        program = JobProgram(
            python=sys.executable,
            task_file=task,
            output=output,
            scratch=scratch,
            sandbox=sandbox,
            title=f"modelyard job {self.mark}",
            module="support.job_deeds",
            roots=(str(ROOT), str(ROOT / "tests")),
        )
        return JobProcess(program, limits)

    def end_of(self, do: str, limits: ProcessLimits = LIMITS) -> JobEnd:
        return self.process(do, limits).run()

    def sandbox(self, hidden: Path) -> Sandbox:
        return Sandbox(
            profile="default",
            landlock_abi=kernel().landlock_abi,
            seccomp=kernel().seccomp,
            everywhere=True,
            hidden=(str(hidden),),
            readable=(str(self.folder),),
            writable=(str(self.folder / "output"), str(self.folder / "scratch")),
            network=False,
            unix_sockets=False,
            execute=True,
            leave_group=False,
            shared_memory=False,
            attributes=False,
        )


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path, secrets.token_hex(8))


@pytest.fixture(autouse=True)
def _nothing_remains(scene: Scene) -> object:
    yield
    found = _named(scene.mark)
    assert not found


def _named(mark: str) -> list[str]:
    """The command lines of processes that carry the mark."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            line = (entry / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if entry.name.isdigit() and int(entry.name) != os.getpid() and mark in line:
            found.append(line)
    return found


def _until_it_says(process: JobProcess, text: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while process.take_news().progress.text != text:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _run_aside(process: JobProcess) -> tuple[threading.Thread, list[JobEnd]]:
    ends: list[JobEnd] = []
    thread = threading.Thread(target=lambda: ends.append(process.run()))
    thread.start()
    return thread, ends


def test_work_reports_progress_points_notes_lines_and_result(scene: Scene) -> None:
    process = scene.process("work")
    end = process.run()
    news = process.take_news()
    assert end.outcome == "finished"
    assert end.report is not None
    assert end.report.title == "Done"
    assert (news.progress.fraction, news.progress.text) == (0.5, "half of it")
    assert [(one.curve, one.step, one.value) for one in news.points] == [("loss", 1, 0.25)]
    assert set(news.lines) == {"a note", "printed"}
    assert news.cpu_secs > 0
    leader = (scene.folder / LEADER).read_text()
    assert pid_of(leader) is not None
    assert not alive(leader)
    assert not process.take_news().lines


def test_refusal_is_the_reason(scene: Scene) -> None:
    assert scene.end_of("refuse") == JobEnd("refused", "no such layer")


def test_process_is_nice_with_one_thread_no_secrets_and_its_home_in_scratch(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    monkeypatch.setenv("DEPLOYMENT_NOTE", "whatever an operator has there")
    monkeypatch.setenv("HTTPS_PROXY", "http://u:p@proxy:3128")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    process = scene.process("facts")
    assert process.run().outcome == "finished"
    lines = process.take_news().lines
    scratch = str(scene.folder / "scratch")
    assert json.loads(lines[0]) == {
        "OMP_NUM_THREADS": "1",
        "HOME": scratch,
        "AWS_SECRET_ACCESS_KEY": None,
        "PYTHONPATH": None,
        "DEPLOYMENT_NOTE": None,
        "HTTPS_PROXY": None,
        "LC_ALL": "C.UTF-8",
        "nice": 19,
        "cwd": scratch,
        "modules": False,
    }


@pytest.mark.skipif(not kernel().landlock_abi or not kernel().seccomp, reason="no Landlock here")
def test_confined_process_reads_no_hidden_file_and_writes_only_to_its_folders(
    scene: Scene, tmp_path_factory: pytest.TempPathFactory
) -> None:
    state = tmp_path_factory.mktemp("state")
    (state / "secret").write_text("s")
    elsewhere = tmp_path_factory.mktemp("other") / "file"
    process = scene.process(
        "probe",
        sandbox=scene.sandbox(state),
        hidden=str(state / "secret"),
        elsewhere=str(elsewhere),
    )
    end = process.run()
    assert end.outcome == "finished", end
    assert process.take_news().lines == ["[]"]


@pytest.mark.skipif(not kernel().seccomp, reason="no seccomp here")
def test_confined_process_copies_trees_and_changes_no_attributes(
    scene: Scene, tmp_path_factory: pytest.TempPathFactory
) -> None:
    state, other = tmp_path_factory.mktemp("state"), tmp_path_factory.mktemp("other")
    files = {"hidden": state / "secret", "beside": other / "file"}
    for file in files.values():
        file.write_text("s")
        file.chmod(0o600)
    before = {name: (file.stat(), os.listxattr(file)) for name, file in files.items()}
    end = scene.process(
        "change_attributes", sandbox=scene.sandbox(state), **{n: str(f) for n, f in files.items()}
    ).run()
    assert end.outcome == "finished", end
    assert {name: (file.stat(), os.listxattr(file)) for name, file in files.items()} == before
    assert (scene.folder / "scratch" / "copy" / "file").read_text() == "x"


@pytest.mark.slow
def test_process_that_eats_memory_is_killed_with_what_it_took_and_the_limit(scene: Scene) -> None:
    end = scene.end_of("eat_memory")
    assert end.outcome == "failed"
    assert "of memory, more than its limit of 256 MiB" in end.reason


def test_process_that_asks_for_too_much_memory_at_once_ran_out_of_it(scene: Scene) -> None:
    end = scene.end_of("ask_for_too_much")
    assert end.outcome == "failed"
    assert end.reason.startswith("the job's process ran out of memory: its limit is 256 MiB")


@pytest.mark.slow
def test_process_that_loops_ends_with_its_processor_time(scene: Scene) -> None:
    end = scene.end_of("loop", _with(cpu_secs=1))
    assert end.outcome == "failed"
    assert "used more than its limit of 1 s of processor time" in end.reason


@pytest.mark.slow
def test_process_whose_threads_loop_ends_at_its_deadline(scene: Scene) -> None:
    end = scene.end_of("spin_threads", _with(wall_secs=1))
    assert end.outcome == "failed"
    assert "took longer than its limit of 1 s" in end.reason


@pytest.mark.parametrize("do", ["flood", "flood_without_lines"])
@pytest.mark.slow
def test_process_that_floods_its_output_is_killed_and_little_is_kept(do: str, scene: Scene) -> None:
    process = scene.process(do, _with(printed_bytes=8 << 20))
    end = process.run()
    assert "printed more than its limit of 8 MiB" in end.reason
    lines = process.take_news().lines
    assert sum(map(len, lines)) < 1 << 20


@pytest.mark.slow
def test_process_that_forks_without_end_is_killed_whole(scene: Scene) -> None:
    end = scene.end_of("fork", _with(processes=32))
    assert end.outcome == "failed"
    assert "started more processes than its limit of 32" in end.reason


def test_process_that_starts_threads_without_end_is_killed(scene: Scene) -> None:
    end = scene.end_of("start_threads", _with(all_threads=64))
    assert "started more threads than its limit of 64" in end.reason


@pytest.mark.skipif(not kernel().seccomp, reason="no seccomp here")
def test_process_whose_tool_needs_no_others_cannot_start_any(scene: Scene, tmp_path: Path) -> None:
    alone = scene.sandbox(tmp_path / "hidden")._replace(fork=False)
    end = scene.process("fork", sandbox=alone).run()
    assert (end.outcome, "Operation not permitted" in end.reason) == ("failed", True), end.reason


def test_processes_that_are_left_end_with_the_job(scene: Scene) -> None:
    assert scene.end_of("leave_children").outcome == "finished"


def test_crash_is_told_with_its_signal_and_place(scene: Scene) -> None:
    end = scene.end_of("crash")
    assert end.outcome == "failed"
    assert "was killed by signal 11 (SIGSEGV): Fatal Python error: Segmentation fault" in end.reason
    assert "in string_at" in end.reason


def test_crash_behind_the_result_changes_nothing(scene: Scene) -> None:
    assert scene.end_of("crash_at_the_end").outcome == "finished"


def test_cancel_ends_by_sigterm(scene: Scene) -> None:
    process = scene.process("sleep", _with(grace_secs=60))
    thread, ends = _run_aside(process)
    _until_it_says(process, "asleep")
    process.cancel()
    thread.join(WAIT_S)
    assert ends == [JobEnd("cancelled", "the job's process was cancelled")]


def test_cancel_kills_who_ignores_sigterm_after_the_grace(scene: Scene) -> None:
    process = scene.process("ignore_signals")
    thread, ends = _run_aside(process)
    _until_it_says(process, "deaf")
    began = time.monotonic()
    process.cancel()
    thread.join(WAIT_S)
    assert ends[0].outcome == "cancelled"
    assert time.monotonic() - began >= LIMITS.grace_secs


def test_abandoned_process_is_killed_at_once(scene: Scene) -> None:
    process = scene.process("ignore_signals", _with(grace_secs=60))
    thread, ends = _run_aside(process)
    _until_it_says(process, "deaf")
    process.abandon("its lease was lost")
    thread.join(WAIT_S)
    assert ends == [JobEnd("abandoned", "its lease was lost")]
    process.cancel()  # comes too late, and harms nothing


def test_half_a_message_fails_with_status_and_says_so(scene: Scene) -> None:
    end = scene.end_of("half_line")
    assert end.reason == (
        "the job's process exited with status 3; it printed nothing; it broke off within a message"
    )


def test_end_without_a_result_fails_with_the_last_lines(scene: Scene) -> None:
    assert scene.end_of("no_message") == JobEnd(
        "failed", "the job's process ended without a result; its last lines: nothing to say"
    )


@pytest.mark.parametrize(
    ("do", "said"),
    [
        ("bad_message", "sent a message that cannot be read (Expected `float`"),
        ("long_message", "sent a message of more than 1048576 bytes"),
    ],
)
def test_process_that_breaks_the_protocol_is_killed(do: str, said: str, scene: Scene) -> None:
    end = scene.end_of(do)
    assert end.outcome == "failed"
    assert said in end.reason


def test_points_that_nobody_takes_are_thinned(scene: Scene) -> None:
    process = scene.process("many_messages")
    assert process.run().outcome == "finished"
    points = process.take_news().points
    assert 1000 <= len(points) <= 2000
    assert points[0].step == 0


@pytest.mark.parametrize(
    ("do", "what"), [("fill_disk", "disk for its result"), ("fill_unlinked", "disk")]
)
@pytest.mark.slow
def test_process_that_takes_too_much_disk_is_killed(do: str, what: str, scene: Scene) -> None:
    end = scene.end_of(do)
    assert end.outcome == "failed"
    assert f"of {what}, more than its limit of 64 MiB" in end.reason


@pytest.mark.parametrize(
    ("where", "mib", "what"),
    [("disk", 100, "disk"), ("memory", 300, "memory for files without a name")],
)
@pytest.mark.skipif(os.geteuid() != 0, reason="only root sees all of what others have mapped")
@pytest.mark.slow
def test_process_that_hides_what_it_takes_in_mappings_is_killed(
    where: str, mib: int, what: str, scene: Scene
) -> None:
    end = scene.process("hide_mapped", where=where, mib=str(mib)).run()
    assert end.outcome == "failed"
    assert f"of {what}, more than its limit of" in end.reason


@pytest.mark.parametrize("where", ["scratch", pytest.param("output", marks=pytest.mark.slow)])
def test_process_that_nests_folders_without_end_fails_and_they_go(where: str, scene: Scene) -> None:
    end = scene.process("nest", where=where).run()
    assert end == JobEnd("failed", "the job's process made folders more than 64 deep")
    remove(scene.folder / where)


def test_process_that_makes_files_without_end_fails(scene: Scene) -> None:
    end = scene.end_of("many_entries", _with(entries=100))
    assert end == JobEnd("failed", "the job's process made more than 100 files and folders")


def test_one_file_beyond_the_disk_limit_is_refused_by_the_kernel(scene: Scene) -> None:
    end = scene.end_of("one_large_file")
    assert end.outcome == "failed"
    assert "disk" in end.reason
    assert "limit of 64 MiB" in end.reason
    assert (scene.folder / "output" / "large").stat().st_size <= 64 << 20


def _with(**more: object) -> ProcessLimits:
    return msgspec.structs.replace(LIMITS, **more)
