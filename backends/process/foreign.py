"""The way from the server's Python into a model's own, in a process that will be its worker.

The process enters its sandbox first and becomes the other program then: neither that program nor
what its environment runs at its start (`.pth` files, `sitecustomize`) is ever outside. It has none
of the server's packages on its path; `backends.process.lent_packages` lends what a worker needs.
"""

import json
import os
import sys
from pathlib import Path

from backends.process.interpreter import REFUSED_STATUS, VARIABLE, version_tag
from repository.process.parent import die_with
from repository.sandbox.enter import entered, variables

_ROOT = Path(__file__).resolve().parents[2]

# Any Python 3 can read this; the rest needs the server's version.
_START = """
import os, sys
sys.path[:] = [one for one in sys.path if one]
tag, root = sys.argv[1:3]
if sys.implementation.cache_tag != tag:
    sys.stderr.write(
        "the environment's Python is %s (%s), and the server's is %s: compiled packages of one do "
        "not work in the other; make the environment with the server's version of Python\\n"
        % (sys.version.split()[0], sys.implementation.cache_tag, tag)
    )
    sys.stderr.flush()
    os._exit({status})
sys.path.insert(0, root)
from backends.process.lent_packages import start
start(root, *sys.argv[3:])
"""


def main(channel_fd: int, heartbeat_fd: int, parent_pid: int) -> None:
    """Become the interpreter that the environment tells of, and there the worker."""
    die_with(parent_pid)
    python, lends_numpy, environment = json.loads(os.environ.pop(VARIABLE))
    os.environ.update(environment)
    for name in ("PYTHONPATH", "PYTHONHOME"):
        os.environ.pop(name, None)
    sandbox = entered()
    if sandbox is not None and sandbox.profile == "strict":
        # Over there the filter is set again, without the one program that this step starts. Files
        # are confined already, and what lies above a hidden folder cannot be listed any more.
        os.environ.update(variables(sandbox._replace(landlock_abi=0, execute=False)))
    lent = json.dumps([[one for one in sys.path if os.path.isdir(one)], lends_numpy])
    numbers = [str(one) for one in (channel_fd, heartbeat_fd, parent_pid)]
    arguments = [version_tag(), str(_ROOT), lent, *numbers, sys.argv[-1]]
    start = _START.format(status=REFUSED_STATUS)
    try:
        os.execv(python, [python, "-B", "-s", "-c", start, *arguments])
    except OSError as error:
        sys.stderr.write(f"the environment's Python, {python}, cannot be started: {error}\n")
        sys.stderr.flush()
        os._exit(REFUSED_STATUS)
