"""Kills a piece of file work at each of its steps in turn, to see what is left on the disk."""

import subprocess
import sys
from pathlib import Path

MOST_STEPS = 500
ROOT = Path(__file__).parent.parent.parent

_DRIVER = """
import os, signal, sys
from pathlib import Path
{preparation}

WATCHED = {{"open", "os.mkdir", "os.rename", "os.link", "os.chmod", "os.remove", "os.utime",
           "os.rmdir", "os.truncate"}}

def step(folder, number):
    left = number
    def hook(event, arguments):
        nonlocal left
        if event in WATCHED and any(str(folder) in str(item) for item in arguments):
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(hook)
    work(folder)

top = Path(sys.argv[1])
for number in range({most}):
    folder = top / f"{{number:03}}"
    folder.mkdir()
    prepare(folder)
    child = os.fork()
    if not child:
        step(folder, number)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    if os.WIFEXITED(status):
        sys.exit(os.WEXITSTATUS(status))
sys.exit("the work has more than {most} steps")
"""


def killed_at_every_step(top: Path, preparation: str) -> list[Path]:
    """A folder per step at which a process was killed with SIGKILL, then one it finished in.

    `preparation` is Python that defines `prepare(folder)` and `work(folder)`. A step is a system
    call that changes or opens something below the folder.
    """
    script = _DRIVER.format(preparation=preparation, most=MOST_STEPS)
    command = [sys.executable, "-c", script, str(top)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return sorted(top.iterdir())
