"""A tool run on folders, in a process and a working directory of its own, as a worker runs it."""

import subprocess
import sys
from pathlib import Path

import msgspec

from control.jobs.messages import Finished, Message, Task
from control.jobs.report import Report
from control.jobs.spec import JobSpec

LONGEST_S = 3600


def run_tool(
    folder: Path, spec: JobSpec, source: Path, data: str = "", *, threads: int = 2, seed: int = 1
) -> Report:
    """The report, of a result in `folder / "output"`. Raises RuntimeError where there is none."""
    folder, source = folder.resolve(), source.resolve()
    data = data and str(Path(data).resolve())
    for name in ("output", "scratch"):
        (folder / name).mkdir(parents=True)
    output, scratch = str(folder / "output"), str(folder / "scratch")
    task = Task("benchmark", spec, str(source), {}, data, output, scratch, threads, seed)
    file, messages = folder / "task.json", folder / "messages.jsonl"
    file.write_bytes(msgspec.json.encode(task))
    with messages.open("wb") as to:
        command = [sys.executable, "-m", "jobs.tools", str(file), str(to.fileno())]
        subprocess.run(command, cwd=scratch, pass_fds=(to.fileno(),), check=True, timeout=LONGEST_S)
    last = msgspec.json.decode(messages.read_bytes().splitlines()[-1], type=Message)
    if not isinstance(last, Finished):
        raise RuntimeError(f"the tool found no result: {last}")
    return last.report


def figure(report: Report, name: str) -> tuple[float, float]:
    """Before and after of the figure whose name begins so; NaN where it is not known."""
    found = next(one for one in report.figures if one.name.startswith(name))
    before, after = (float("nan") if one is None else one for one in (found.before, found.after))
    return before, after
