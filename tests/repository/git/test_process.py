"""git ends when its parent does, and runs within limits."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from repository.git import launch

PARENT = f"""
import os, subprocess, sys
launch = [sys.executable, "-I", "-S", {launch.__file__!r}, str(os.getpid()), "0", "0"]
child = subprocess.Popen([*launch, "/bin/sleep", "60"])
print(child.pid, flush=True)
child.wait()
"""


def command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def until(pid: int, *, sleeps: bool) -> bool:
    deadline = time.monotonic() + 60
    while command_of(pid).startswith(b"/bin/sleep") is not sleeps:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def test_what_was_launched_ends_with_its_parent():
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE)
    with parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert until(pid, sleeps=True)
        os.kill(parent.pid, signal.SIGKILL)
        assert until(pid, sleeps=False)


def test_what_was_launched_has_a_memory_limit():
    command = [sys.executable, "-I", "-S", launch.__file__, str(os.getpid()), "1048576", "0"]
    shown = subprocess.check_output([*command, "/bin/cat", "/proc/self/limits"], text=True)
    (line,) = (line for line in shown.splitlines() if line.startswith("Max data size"))
    assert line.split()[3:5] == ["1048576", "1048576"]


def test_nothing_is_launched_for_a_parent_that_is_gone():
    command = [sys.executable, "-I", "-S", launch.__file__, "1", "0", "0", "/bin/echo", "hello"]
    done = subprocess.run(command, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (1, b"")


def test_what_was_launched_has_no_privileges_and_no_internet():
    code = "import socket; socket.socket(socket.AF_UNIX); print(open('/proc/self/status').read())"
    command = [sys.executable, "-I", "-S", launch.__file__, str(os.getpid()), "0", "0"]
    said = subprocess.run([*command, sys.executable, "-c", code], capture_output=True, check=True)
    assert b"NoNewPrivs:\t1" in said.stdout
    connecting = "import socket; socket.socket(socket.AF_INET)"
    refused = subprocess.run(
        [*command, sys.executable, "-c", connecting], capture_output=True, check=False
    )
    assert b"PermissionError" in refused.stderr
