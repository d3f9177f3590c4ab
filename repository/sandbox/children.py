"""Processes of ours that parse what others wrote: how they start, and in which sandbox."""

import os
from pathlib import Path

from repository.sandbox.enter import variables
from repository.sandbox.policy import Sandbox, is_secret

_ROOT = str(Path(__file__).resolve().parents[2])


def start_line(module: str) -> str:
    """Python code that enters the sandbox it is told of, and then runs the module's `main`."""
    return (
        "from repository.sandbox.enter import enter_told; enter_told(); "
        f"from {module} import main; main()"
    )


def child_environment(sandbox: Sandbox | None) -> dict[str, str]:
    """Ours, so that the child finds our packages; inside a sandbox without secrets, and with
    temporary files in memory, which is the only place where it writes."""
    paths = [_ROOT, *filter(None, [os.environ.get("PYTHONPATH")])]
    inherited = dict(os.environ)
    if sandbox is not None:
        inherited = {name: text for name, text in inherited.items() if not is_secret(name, text)}
        inherited |= dict.fromkeys(("TMPDIR", "TEMP", "TMP"), "/dev/shm")
    return {**inherited, "PYTHONPATH": os.pathsep.join(paths), **variables(sandbox)}
