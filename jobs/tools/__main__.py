"""`python -m jobs.tools TASK_FILE DESCRIPTOR`: run one task in this process, and report it."""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from control.jobs.messages import Task
from control.jobs.report import Report
from jobs.tools.work import Work, WorkRefused

TOOLS = {
    "convert": "jobs.tools.convert.run",
    "optimise": "jobs.tools.optimise.run",
    "quantise": "jobs.tools.quantise.run",
    "quantise_llm": "jobs.tools.quantise_llm.run",
    "prune": "jobs.tools.prune.run",
    "distil": "jobs.tools.distil.run",
    "profile": "jobs.tools.profile.run",
}
"""Module of each type; its `run(work)` returns the report. Each imports its own libraries."""


def main() -> int:
    """Run the task of the file; 0 when it ended with a message, whatever the message says."""
    task = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Task)
    work = Work(task, int(sys.argv[2]))
    module = TOOLS[str(task.spec.__struct_config__.tag)]
    run: Callable[[Work], Report] = importlib.import_module(module).run
    try:
        report = run(work)
    except WorkRefused as reason:
        work.refuse(str(reason))
    else:
        work.finish(report)
    return 0


if __name__ == "__main__":
    sys.exit(main())
