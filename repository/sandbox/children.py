"""The environment of processes of ours that parse what others wrote."""

import os

from repository.sandbox.enter import variables
from repository.sandbox.policy import Sandbox, is_secret


def child_environment(sandbox: Sandbox | None) -> dict[str, str]:
    """Ours; inside a sandbox without secrets, and with temporary files in memory, which is the only
    place where it writes. The process enters the sandbox before anything else."""
    inherited = dict(os.environ)
    if sandbox is not None:
        inherited = {name: text for name, text in inherited.items() if not is_secret(name, text)}
        inherited |= dict.fromkeys(("TMPDIR", "TEMP", "TMP"), "/dev/shm")
    return inherited | variables(sandbox)
