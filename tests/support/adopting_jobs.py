"""Jobs' processes in a program that adopts what they leave, as a worker does; its own process,
since it adopts until it ends. Prints what became of them: `python -m support.adopting_jobs NAME …`.
"""

import json
import sys
import threading
import time
from pathlib import Path

from jobs.process.job_process import JobProcess
from jobs.process.limits import ProcessLimits
from jobs.process.program import ROOT, JobProgram
from repository.sandbox.enter import kernel
from repository.sandbox.orphans import adopt
from repository.sandbox.policy import Sandbox

LIMITS = ProcessLimits(memory_bytes=256 << 20, cpu_secs=60, wall_secs=60, grace_secs=0.5)


def job(folder: Path, do: str, mark: str, leave_group: bool = False) -> JobProcess:
    folder.mkdir()
    output, scratch = folder / "output", folder / "scratch"
    output.mkdir()
    scratch.mkdir()
    sandbox = Sandbox(
        profile="default",
        landlock_abi=kernel().landlock_abi,
        seccomp=kernel().seccomp,
        everywhere=True,
        hidden=(),
        readable=(str(folder),),
        writable=(str(output), str(scratch)),
        network=False,
        unix_sockets=False,
        execute=True,
        leave_group=leave_group,
        shared_memory=False,
        attributes=False,
    )
    task = {"do": do, "mark": mark, "output": str(output), "scratch": str(scratch)}
    (folder / "task.json").write_text(json.dumps(task))
    roots = (str(ROOT), str(ROOT / "tests"))
    program = JobProgram(
        sys.executable,
        folder / "task.json",
        output,
        scratch,
        sandbox,
        mark,
        "support.job_deeds",
        roots,
    )
    return JobProcess(program, LIMITS)


def beside(folder: Path, mark: str, deed: str = "leave_a_child", leave_group: bool = False) -> None:
    """One job ends while another one's child, whose parent has ended, is needed."""
    longer = job(folder / "longer", deed, mark, leave_group)
    outcomes: list[str] = []
    thread = threading.Thread(target=lambda: outcomes.append(longer.run().outcome))
    thread.start()
    until = time.monotonic() + 60
    while longer.take_news().progress.text != "left" and thread.is_alive():
        assert time.monotonic() < until
        time.sleep(0.01)
    shorter = job(folder / "shorter", "work", mark, leave_group)
    thread_of_shorter = threading.Thread(target=lambda: outcomes.append(shorter.run().outcome))
    thread_of_shorter.start()
    thread_of_shorter.join()
    (folder / "longer" / "scratch" / "go").touch()
    thread.join()
    print(outcomes)


def strays(folder: Path, mark: str) -> None:
    """The same of two jobs that may leave their groups, as profiles may."""
    beside(folder, mark, "leave_a_stray", leave_group=True)


def escaped(folder: Path, mark: str) -> None:
    """A job that may leave its group, as a profile may, takes memory there."""
    escaping = job(folder / "escaping", "escape", mark, leave_group=True)
    thread = threading.Thread(target=lambda: print(escaping.run().reason))
    thread.start()
    thread.join()


if __name__ == "__main__":
    adopt()
    {"beside": beside, "strays": strays, "escaped": escaped}[sys.argv[1]](
        Path(sys.argv[2]), sys.argv[3]
    )
