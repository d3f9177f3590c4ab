"""A test aid: the process kills itself at a named point, to show that a restart repairs it.

No effect unless MODELYARD_CRASH_AT in the process's environment names the point, or, as
`@/path/of/a/file`, a file that does: "push.received", or "push.received parent" to kill the parent
process as well. The file goes first, so that the process that is started next lives on.
"""

import os
import signal
from contextlib import suppress
from pathlib import Path

VARIABLE = "MODELYARD_CRASH_AT"

POINTS = (
    "push.received",
    "push.refs_moved",
    "push.accepted",
    "push.snapshot_written",
    "push.before_deploy",
    "push.deployed",
    "push.told",
    "push.served",
    "import.fetched",
    "import.snapshot_written",
    "import.deployed",
    "job.snapshot_written",
    "job.published",
    "rollout.start",
    "rollout.prewarm",
    "rollout.mirror",
    "rollout.step",
    "rollout.pause",
    "rollout.resume",
    "rollout.promote",
    "rollout.healthy",
    "rollout.abort",
    "rollout.degrade",
    "rollout.supersede",
    "rollout.retry",
    "notification.claimed",
    "notification.sent",
)
"""The transitions of a push, an import, a rollout and a message, in their order; `push.refs_moved`
is before accept is recorded, a rollout's are before the commit, and `notification.sent` is before
what came of it is kept."""


def point(name: str) -> None:
    """Here the process may be killed by SIGKILL. `name` must be one of POINTS."""
    if name not in POINTS:
        raise ValueError(f"'{name}' is no crash point; there are {', '.join(POINTS)}")
    armed = os.environ.get(VARIABLE, "")
    if armed.startswith("@"):
        _crash_once(Path(armed[1:]), name)
    elif armed == name:
        os.kill(os.getpid(), signal.SIGKILL)


def _crash_once(trigger: Path, name: str) -> None:
    with suppress(FileNotFoundError):
        words = trigger.read_text().split()
        if words[:1] != [name]:
            return
        trigger.unlink()
        if words[1:] == ["parent"]:
            os.kill(os.getppid(), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
