"""What the kernel says a process is doing."""

from pathlib import Path

STOPPED = ("T", "t")
"""By a signal, or by a debugger."""


def process_state(pid: int) -> str:
    """The state of a process as the kernel names it ("S", "T", "D"); "" when it is gone, or where
    there is no /proc. Source: proc_pid_stat(5)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""
