"""What a tool reports while it works."""

import os
import time
from typing import NoReturn

import msgspec

from control.jobs.messages import CurvePoint, Finished, JobProgress, Message, Note, Refused, Task
from control.jobs.report import Report


class WorkRefused(Exception):
    """The work cannot be done; its text is the reason for who asked."""


class Work:
    """A task, and the descriptor on which its messages leave as JSON lines."""

    def __init__(self, task: Task, descriptor: int) -> None:
        self.task = task
        self._descriptor = descriptor
        self._fraction = 0.0
        self._began = time.monotonic()

    def progress(self, fraction: float, text: str) -> None:
        """Say how far the work is; a smaller fraction than before counts as that one."""
        self._fraction = min(max(fraction, self._fraction), 1.0)
        self._send(JobProgress(self._fraction, text))

    def point(self, curve: str, step: float, value: float) -> None:
        """Add a point to a live curve."""
        self._send(CurvePoint(curve, step, value))

    def note(self, text: str) -> None:
        """Write a line to the job's log."""
        self._send(Note(text))

    def finish(self, report: Report) -> None:
        """End the work; the output folder holds the result unless the verdict is "refused". The
        report gets the seconds since the work began."""
        seconds = time.monotonic() - self._began
        self._send(Finished(msgspec.structs.replace(report, seconds=seconds)))

    def refuse(self, reason: str) -> None:
        """End the work without a result."""
        self._send(Refused(reason))

    def _send(self, message: Message) -> None:
        line = msgspec.json.encode(message) + b"\n"
        view = memoryview(line)
        while view:
            view = view[os.write(self._descriptor, view) :]


def refuse(reason: str) -> NoReturn:
    """End the work from anywhere below a tool. Raises WorkRefused."""
    raise WorkRefused(reason)
