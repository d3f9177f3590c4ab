"""The processes of the server that a profile measures."""

import os
import subprocess
import sys

from jobs.tools.profile.served import _family

FROM_A_THREAD = """
import subprocess, sys, threading
def start():
    child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"],
                             stdin=subprocess.PIPE)
    print(child.pid, flush=True)
    sys.stdin.read()
    child.communicate()
thread = threading.Thread(target=start)
thread.start()
thread.join()
"""


def test_children_that_another_thread_started_belong_to_the_family() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", FROM_A_THREAD], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        found = _family(process.pid)
        process.communicate(timeout=60)
    assert found == [process.pid, child]
    assert os.getpid() not in found
