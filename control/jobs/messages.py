"""Messages between a job's own process and the worker that started it.

The process runs in a tool environment, so this module imports msgspec and nothing else of ours but
`control.jobs.report` and the specs. The worker writes one `Task` as JSON to the file that
the process is given; the process writes `Message`s as JSON lines to the descriptor that the task
names, any number of `JobProgress`, `CurvePoint` and
`Note`, then exactly one of `Finished` or `Refused`. A
process that ends without one of these has failed, and the worker says how it ended.
"""

import msgspec

from control.jobs.report import Report
from control.jobs.spec import JobSpec

MOST_LINE_BYTES = 1 << 20
"""The longest message; a process that writes a longer one is ended."""


class Task(msgspec.Struct, frozen=True):
    """A job as its process gets it. Folders are absolute paths.

    source: the version's folder, read-only: its files, with `config.pbtxt` beside them in
        `source/config.pbtxt` as it is in force (auto-completed).
    sources: further versions by the role that the spec gives them ("teacher", "reference").
    data: the data file or folder that the spec names, or "" for none; read-only.
    output: an empty folder. What lies there at `Finished` is the result: `config.pbtxt` and the
        folder `1` with the version's files.
    scratch: an empty folder for anything else; its size counts against the job's disk limit.
    """

    job: str
    spec: JobSpec
    source: str
    sources: dict[str, str]
    data: str
    output: str
    scratch: str
    threads: int
    seed: int


class JobProgress(msgspec.Struct, frozen=True, tag="progress"):
    """How far the job is: `fraction` from 0 to 1, never smaller than before, and what it does."""

    fraction: float
    text: str


class CurvePoint(msgspec.Struct, frozen=True, tag="point"):
    """One value of a live curve, such as a loss by step."""

    curve: str
    step: float
    value: float


class Note(msgspec.Struct, frozen=True, tag="note"):
    """A line for the job's log, beside what the process prints."""

    text: str


class Finished(msgspec.Struct, frozen=True, tag="finished"):
    """The work is done and `output` holds the result, unless the report's verdict is "refused"."""

    report: Report


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """The work cannot be done; `reason` says to who asked what is wrong and what would work."""

    reason: str


Message = JobProgress | CurvePoint | Note | Finished | Refused
