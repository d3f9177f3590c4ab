"""How a job's process ended, in words for who asked for the job. Pure."""

import signal
from collections.abc import Sequence
from typing import Literal

import msgspec

from control.jobs.messages import Finished, Refused
from control.jobs.report import Report
from jobs.process.limits import ProcessLimits, secs_text, size_text
from repository.process.child import exit_text
from repository.sandbox.enter import FAILED_STATUS

Outcome = Literal["finished", "refused", "failed", "cancelled", "abandoned"]

_OUT_OF_MEMORY = (
    "MemoryError",
    "can't allocate memory",
    "std::bad_alloc",
    "Cannot allocate memory",
)
_FILE_TOO_LARGE, _DISK_FULL = "[Errno 27]", "[Errno 28]"
_FROM_OUTSIDE = (-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT)
_FATAL = "Fatal Python error"
_SHOWN_LINES = 3
_MOST_REASON = 2000


class Verdict(msgspec.Struct, frozen=True):
    """Why a process was ended by us. `outcome`: what the job is then; `words`: a sentence's end,
    "took more memory than its limit of 1 GiB"."""

    outcome: Outcome
    words: str


class Ended(msgspec.Struct, frozen=True):
    """A process that has ended: its `status` as `subprocess.Popen.returncode` has it, the last
    lines that it printed, the message that ended its work, and whether it broke off within one."""

    status: int
    lines: Sequence[str]
    message: Finished | Refused | None
    half_message: bool


class JobEnd(msgspec.Struct, frozen=True):
    """What became of a job's process. `report` comes with "finished"; `reason` with all others.
    `again`: another attempt may go better, since somebody from outside ended this one."""

    outcome: Outcome
    reason: str = ""
    report: Report | None = None
    again: bool = False


def job_end(ended: Ended, verdict: Verdict | None, limits: ProcessLimits) -> JobEnd:
    """Decide it. A cancel that came when the work was done changes nothing."""
    if verdict is not None and verdict.outcome == "abandoned":
        return JobEnd("abandoned", verdict.words)
    is_over = ended.message is not None and (verdict is None or verdict.outcome == "cancelled")
    if is_over and isinstance(ended.message, Finished):
        return JobEnd("finished", report=ended.message.report)
    if is_over and isinstance(ended.message, Refused):
        return JobEnd("refused", ended.message.reason)
    if verdict is not None:
        return JobEnd(verdict.outcome, _sentence(verdict.words))
    words = _words(ended, limits)
    if ended.half_message:
        words += "; it broke off within a message"
    return JobEnd("failed", _sentence(words), again=ended.status in _FROM_OUTSIDE)


def _words(ended: Ended, limits: ProcessLimits) -> str:
    lines, status = ended.lines, ended.status
    text = "\n".join(lines[-20:])
    if status in (-signal.SIGXCPU, 128 + signal.SIGXCPU):
        return cpu_words(limits)
    if any(one in text for one in _OUT_OF_MEMORY) and status != 0:
        return f"ran out of memory: its limit is {size_text(limits.memory_bytes)}{_last(lines)}"
    if _FILE_TOO_LARGE in text and status != 0:
        most = max(limits.disk_bytes, limits.output_bytes)
        return f"wrote a file larger than its disk limit of {size_text(most)}"
    if _DISK_FULL in text and status != 0:
        return f"found the disk full{_last(lines)}"
    if status == -signal.SIGKILL:
        return (
            "was killed by signal 9 (SIGKILL), which no limit of the job sent: the kernel does so "
            "when the machine runs out of memory"
        )
    if status < 0:
        return f"{exit_text(status)}{_crash(lines)}"
    if status == FAILED_STATUS:
        return f"could not be confined{_last(lines)}"
    if status == 0:
        return f"ended without a result{_last(lines)}"
    return f"{exit_text(status)}{_last(lines)}"


def cpu_words(limits: ProcessLimits) -> str:
    """Of a process that has used its processor time."""
    return f"used more than its limit of {secs_text(limits.cpu_secs)} of processor time"


def _crash(lines: Sequence[str]) -> str:
    """Where a native library crashed, as faulthandler says."""
    fatal = next((at for at, line in enumerate(lines) if line.startswith(_FATAL)), None)
    if fatal is None:
        return _last(lines)
    place = next((line.strip() for line in lines[fatal:] if line.lstrip().startswith("File ")), "")
    return f": {lines[fatal]}" + (f" at {place}" if place else "")


def _last(lines: Sequence[str]) -> str:
    shown = [line.strip() for line in lines if line.strip()][-_SHOWN_LINES:]
    return f"; its last lines: {' | '.join(shown)}" if shown else "; it printed nothing"


def _sentence(words: str) -> str:
    return f"the job's process {words}"[:_MOST_REASON]
