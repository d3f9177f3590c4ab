"""Runs a tool as the worker does: a process of its own, with a task file and a pipe."""

import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import onnxruntime

from control.jobs.messages import Finished, JobProgress, Message, Refused, Task
from control.jobs.report import Report
from control.jobs.spec import JobSpec

LONGEST_S = 500


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
    reading, writing = os.pipe()
    command = [sys.executable, "-m", "jobs.tools", str(folder / "task.json"), str(writing)]
    with subprocess.Popen(
        command, pass_fds=[writing], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        os.close(writing)
        lines: list[bytes] = []
        reader = threading.Thread(target=_read_lines, args=(reading, lines))
        reader.start()
        try:
            printed, _ = process.communicate(timeout=LONGEST_S)
        finally:
            process.kill()
            reader.join()
    messages = [msgspec.json.decode(line, type=Message) for line in lines]
    return ToolRun(messages, printed, folder / "output")


def _read_lines(descriptor: int, into: list[bytes]) -> None:
    with open(descriptor, "rb") as file:
        into.extend(file)


def _data(folder: Path, rows: Mapping[str, Any] | Path | None) -> str:
    if rows is None or isinstance(rows, Path):
        return str(rows or "")
    np.savez(folder / "rows.npz", **rows)
    return str(folder / "rows.npz")
