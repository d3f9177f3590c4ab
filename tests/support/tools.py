"""Runs a tool as the worker does: in a process and a folder of its own, with a task file.

Half of the CPU seconds of most runs were imports, so the process is forked from one that has made
them. That a new interpreter runs a tool as well is shown by the tests of jobs.
"""

import multiprocessing
import os
import sys
from collections.abc import Mapping
from functools import cache
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import onnxruntime

from control.jobs.messages import Finished, JobProgress, Message, Refused, Task
from control.jobs.report import Report
from control.jobs.spec import JobSpec
from jobs.tools import __main__ as tool_program

LONGEST_S = 500
MESSAGES, PRINTED = "messages.jsonl", "printed.txt"
"""Files of what a tool sent and printed."""
IMPORTED_BY_CONVERSIONS = ("onnxmltools", "skl2onnx", "lightgbm", "xgboost", "sklearn.ensemble")


class ToolRun(NamedTuple):
    """What a tool's process sent, what it printed, and the folder of its result."""

    messages: list[Message]
    printed: str
    output: Path

    @property
    def report(self) -> Report:
        """The report; fails with the refusal or what was printed where there is none."""
        last = self.messages[-1] if self.messages else None
        assert isinstance(last, Finished), last or self.printed
        return last.report

    @property
    def refusal(self) -> str:
        """The reason of a refusal; fails where there is none."""
        last = self.messages[-1] if self.messages else None
        assert isinstance(last, Refused), last or self.printed
        return last.reason

    @property
    def fractions(self) -> list[float]:
        """Progress in its order."""
        return [one.fraction for one in self.messages if isinstance(one, JobProgress)]

    def answer(self, rows: Mapping[str, Any]) -> list[Any]:
        """What the written ONNX file answers."""
        session = onnxruntime.InferenceSession(
            self.output / "1" / "model.onnx", providers=["CPUExecutionProvider"]
        )
        found: list[Any] = session.run(None, dict(rows))
        return found

    def config(self) -> str:
        """The written config.pbtxt."""
        return (self.output / "config.pbtxt").read_text()


def run_tool(
    folder: Path,
    spec: JobSpec,
    source: Path,
    rows: Mapping[str, Any] | Path | None = None,
) -> ToolRun:
    """Run the tool of a spec on a source folder; `rows` are the arrays of the data file, or it."""
    for name in ("output", "scratch"):
        (folder / name).mkdir(parents=True)
    task = Task(
        job="1", spec=spec, source=str(source), sources={}, data=_data(folder, rows),
        output=str(folder / "output"), scratch=str(folder / "scratch"), threads=1, seed=0,
    )  # fmt: skip
    (folder / "task.json").write_bytes(msgspec.json.encode(task))
    process = _processes().Process(target=_run_tool, args=(folder,))
    process.start()
    process.join(LONGEST_S)
    process.kill()
    process.join()
    lines = (folder / MESSAGES).read_bytes().splitlines()
    messages = [msgspec.json.decode(line, type=Message) for line in lines]
    return ToolRun(messages, (folder / PRINTED).read_text(errors="replace"), folder / "output")


@cache
def _processes() -> ForkServerContext:
    """Forks from one process that has imported what tools import."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*tool_program.TOOLS.values(), *IMPORTED_BY_CONVERSIONS])
    return context


def _run_tool(folder: Path) -> None:
    """In the forked process, which ends with the tool's status."""
    messages, printed = (
        os.open(folder / name, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        for name in (MESSAGES, PRINTED)
    )
    for stream in (1, 2):
        os.dup2(printed, stream)
    os.chdir(folder / "scratch")
    sys.argv = [tool_program.__name__, str(folder / "task.json"), str(messages)]
    sys.exit(tool_program.main())


def _data(folder: Path, rows: Mapping[str, Any] | Path | None) -> str:
    if rows is None or isinstance(rows, Path):
        return str(rows or "")
    np.savez(folder / "rows.npz", **rows)
    return str(folder / "rows.npz")
